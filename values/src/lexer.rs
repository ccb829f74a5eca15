//! Splits an expression into tokens.

use crate::error::{Error, Result};

/// A longer expression is not read.
const MAX_LEN: usize = 1024;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name or keyword.
    Name(String),
    /// `$name`, `$1`, `$`, `$$`, without the first `$`.
    Dollar(String),
    /// An integer, and its suffix in lower case, with `x` before it where it is not decimal.
    Integer(u64, String),
    /// A number with a fraction, and its suffix in lower case.
    Float(f64, String),
    /// A character.
    Character(u8),
    /// A string.
    Text(String),
    /// A character of a wide type, by the letter before it.
    WideCharacter(char, char),
    /// A string of a wide type, by the letter before it.
    WideText(char, String),
    /// Something in single quotes that is no character: a name.
    Quoted(String),
    /// An operator.
    Sign(&'static str),
}

/// Longer ones first.
const SIGNS: [&str; 38] = [
    "->", "::", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+", "-", "*", "/", "%", "&", "|", "^", "~",
    "!", "<", ">", "=", "?", ":", ",", ".", "(", ")", "[", "]", "@", "{", "}", ";", "#", "\\", "`",
];

/// The tokens of an expression.
pub fn tokens(text: &str) -> Result<Vec<Token>> {
    if text.len() > MAX_LEN {
        return Err(Error(format!(
            "the expression is too long ({} bytes)",
            text.len()
        )));
    }
    let mut lexer = Lexer {
        rest: text,
        tokens: Vec::new(),
    };
    while lexer.skip_space() {
        let token = lexer.token()?;
        lexer.tokens.push(token);
    }
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    tokens: Vec<Token>,
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// A token in quotes with a letter before it. Bytes that are written as numbers are no characters
/// of a wide type.
fn wide(letter: char, token: Token) -> Result<Token> {
    let is_lossy = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
    match token {
        Token::Text(text) if !is_lossy(&text) => Ok(Token::WideText(letter, text)),
        Token::Character(byte) if byte.is_ascii() => Ok(Token::WideCharacter(letter, byte.into())),
        Token::Quoted(text) if text.chars().count() == 1 && !is_lossy(&text) => Ok(Token::WideCharacter(
            letter,
            text.chars().next().unwrap_or_default(),
        )),
        _ => Err(Error(format!(
            "the text in quotes after {letter} is not a valid character constant"
        ))),
    }
}

impl<'a> Lexer<'a> {
    fn skip_space(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        !self.rest.is_empty()
    }

    /// Takes what is made of such characters.
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self
            .rest
            .find(|character| !wanted(character))
            .unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn token(&mut self) -> Result<Token> {
        let first = self.rest.chars().next().unwrap_or(' ');
        if first == '$' {
            self.rest = self.rest.get(1..).unwrap_or("");
            return Ok(Token::Dollar(
                self.take(|character| is_name(character) || character == '$')
                    .to_owned(),
            ));
        }
        let fraction = first == '.'
            && self.rest.chars().nth(1).is_some_and(|next| next.is_ascii_digit())
            && !self.follows_value();
        if first.is_ascii_digit() || fraction {
            return self.number();
        }
        if let Some(rest) = self.rest.strip_prefix(['L', 'u', 'U'])
            && let Some(quote) = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))
        {
            self.rest = rest;
            return wide(first, self.quoted(quote)?);
        }
        if is_name(first) {
            return Ok(Token::Name(self.take(is_name).to_owned()));
        }
        if first == '\'' || first == '"' {
            return self.quoted(first);
        }
        for sign in SIGNS {
            if let Some(rest) = self.rest.strip_prefix(sign) {
                self.rest = rest;
                return Ok(Token::Sign(sign));
            }
        }
        Err(Error(format!("\"{first}\" is not valid in an expression")))
    }

    /// Whether the next token follows a value, so that a point selects a member.
    fn follows_value(&self) -> bool {
        match self.tokens.as_slice() {
            // The number of a member of a tuple.
            [.., Token::Sign("."), Token::Integer(..)] => true,
            [.., last] => matches!(
                last,
                Token::Name(_) | Token::Dollar(_) | Token::Quoted(_) | Token::Sign(")" | "]")
            ),
            [] => false,
        }
    }

    fn number(&mut self) -> Result<Token> {
        let after_point = self.tokens.last() == Some(&Token::Sign("."));
        let text = self.rest;
        let bad = |text: &str| Error(format!("\"{text}\" is not a number"));
        for (prefix, radix) in [("0x", 16), ("0X", 16), ("0b", 2), ("0o", 8)] {
            if let Some(rest) = text.strip_prefix(prefix) {
                self.rest = rest;
                let digits = self.take(|character| character.is_digit(radix) || character == '_');
                let number = u64::from_str_radix(&digits.replace('_', ""), radix);
                let suffix = format!("x{}", self.take(is_name).to_lowercase());
                return number
                    .map(|number| Token::Integer(number, suffix))
                    .map_err(|_| bad(text));
            }
        }
        let whole = self.take(|character| character.is_ascii_digit() || character == '_');
        let point = self
            .rest
            .strip_prefix('.')
            .is_some_and(|rest| !rest.starts_with(|next: char| is_name(next) && !next.is_ascii_digit()))
            && !self.rest.starts_with("..");
        let exponent = self.rest.starts_with(['e', 'E']);
        if (point || exponent) && !after_point {
            let mut length = whole.len();
            let mut last = ' ';
            for character in self.rest.chars() {
                let sign = matches!(character, '+' | '-') && matches!(last, 'e' | 'E');
                if !(character.is_ascii_digit() || matches!(character, '.' | 'e' | 'E') || sign) {
                    break;
                }
                length += character.len_utf8();
                last = character;
            }
            let (number, rest) = text.split_at_checked(length).ok_or_else(|| bad(text))?;
            self.rest = rest;
            let suffix = self.take(is_name).to_lowercase();
            let parsed = number.parse();
            return parsed
                .map(|parsed| Token::Float(parsed, suffix))
                .map_err(|_| bad(number));
        }
        let mut suffix = self.take(is_name).to_lowercase();
        let digits = whole.replace('_', "");
        let octal = digits.len() > 1 && digits.starts_with('0');
        let radix = if octal { 8 } else { 10 };
        if octal {
            suffix.insert(0, 'x');
        }
        let number = u64::from_str_radix(&digits, radix).map_err(|_| bad(whole))?;
        Ok(Token::Integer(number, suffix))
    }

    fn quoted(&mut self, quote: char) -> Result<Token> {
        let unfinished = || Error(format!("missing closing {quote}"));
        let mut bytes = Vec::new();
        let mut escaped = false;
        self.rest = self.rest.get(1..).unwrap_or("");
        loop {
            let next = self.rest.chars().next().ok_or_else(unfinished)?;
            self.rest = self.rest.get(next.len_utf8()..).unwrap_or("");
            if next == quote {
                break;
            }
            if next == '\\' {
                escaped = true;
                bytes.push(self.escape().ok_or_else(unfinished)?);
            } else {
                bytes.extend(next.to_string().bytes());
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(match (quote, bytes.as_slice()) {
            ('"', _) => Token::Text(text),
            (_, [byte]) => Token::Character(*byte),
            _ if escaped => {
                return Err(Error(
                    "a character constant has more than one character".to_owned(),
                ));
            }
            _ => Token::Quoted(text),
        })
    }

    fn escape(&mut self) -> Option<u8> {
        let next = self.rest.chars().next()?;
        if next.is_digit(8) {
            let length = self
                .rest
                .chars()
                .take(3)
                .take_while(|digit| digit.is_digit(8))
                .count();
            let (digits, rest) = self.rest.split_at_checked(length)?;
            self.rest = rest;
            return u8::from_str_radix(digits, 8).ok();
        }
        self.rest = self.rest.get(next.len_utf8()..)?;
        Some(match next {
            'n' => b'\n',
            't' => b'\t',
            'r' => b'\r',
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'v' => 11,
            'e' => 27,
            'x' => {
                let digits = self.take(|character| character.is_ascii_hexdigit());
                u8::from_str_radix(digits, 16).ok()?
            }
            other => u8::try_from(other).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_signs() {
        assert_eq!(
            tokens("p->x[0x1f]").unwrap(),
            [
                Token::Name("p".into()),
                Token::Sign("->"),
                Token::Name("x".into()),
                Token::Sign("["),
                Token::Integer(31, "x".into()),
                Token::Sign("]"),
            ]
        );
        assert_eq!(tokens("017UL").unwrap(), [Token::Integer(15, "xul".into())]);
        assert_eq!(tokens("1.5e-3").unwrap(), [Token::Float(0.0015, String::new())]);
        assert_eq!(tokens("1.5f").unwrap(), [Token::Float(1.5, "f".into())]);
        assert_eq!(tokens("'a' '\\n' '\\0'").unwrap().len(), 3);
        assert_eq!(tokens("L'é'").unwrap(), [Token::WideCharacter('L', 'é')]);
        assert_eq!(tokens("u\"a\"").unwrap(), [Token::WideText('u', "a".into())]);
        assert!(tokens("U'ab'").is_err() && tokens("U'\\xe9'").is_err());
        assert_eq!(
            tokens("'a.c'::x").unwrap().first(),
            Some(&Token::Quoted("a.c".into()))
        );
        assert_eq!(tokens("$rip").unwrap(), [Token::Dollar("rip".into())]);
        assert_eq!(tokens("$").unwrap(), [Token::Dollar(String::new())]);
    }

    #[test]
    fn members_of_tuples_are_no_fractions() {
        assert_eq!(
            tokens("pair.0.1").unwrap(),
            [
                Token::Name("pair".into()),
                Token::Sign("."),
                Token::Integer(0, String::new()),
                Token::Sign("."),
                Token::Integer(1, String::new()),
            ]
        );
    }

    #[test]
    fn what_is_not_closed_or_too_long_is_refused() {
        for text in ["'a", "\"x", "'", "0x", "9999999999999999999999", "é§"] {
            assert!(tokens(text).is_err(), "{text}");
        }
        assert!(tokens(&"1+".repeat(4096)).is_err());
    }
}
