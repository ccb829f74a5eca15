//! `echo`, `output` and `printf`.

use super::Context;
use super::error::misuse;
use super::evaluate::evaluated;
use super::format_argument::format_of;
use crate::output::Output;
use backtrail_debugger::Result;
use backtrail_debugger::evaluation::with_context;
use backtrail_values::{EvalContext, Failure, Number, Value, ValueFormatter, parse};

/// No field of `printf` is made wider.
const MAX_WIDTH: usize = 1000;

/// `echo TEXT`.
pub(super) fn echo(_context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let text = arguments.strip_suffix('\\').unwrap_or(arguments);
    Ok(Output::lines(unescaped(text)))
}

/// `output/FORMAT EXPRESSION`: the bare value, which gets no number.
pub(super) fn output(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (format, expression) = format_of(arguments);
    let (_, shown) = with_context(context.navigator, context.watch, |eval| {
        evaluated(eval, format, expression)
    })?;
    Ok(Output::lines(shown.text))
}

/// `printf "FORMAT", EXPRESSION…`.
pub(super) fn printf(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let wrong = || {
        misuse(
            "printf requires a format in quotes, and one value for each conversion",
            "printf \"FORMAT\", EXPRESSION…",
        )
    };
    let (format, rest) = quoted(arguments).ok_or_else(wrong)?;
    let mut values = split(rest).into_iter();
    let text = with_context(context.navigator, context.watch, |eval| {
        let mut text = String::new();
        let mut rest = format;
        while let Some((before, following)) = rest.split_once('%') {
            text.push_str(&unescaped(before));
            let conversion = Conversion::read(following).ok_or_else(wrong)?;
            rest = following.get(conversion.length..).unwrap_or("");
            text.push_str(&match conversion.letter {
                '%' => "%".to_owned(),
                _ => conversion.of(eval, values.next().ok_or_else(wrong)?)?,
            });
        }
        text.push_str(&unescaped(rest));
        Ok(text)
    })?;
    match values.next() {
        Some(_) => Err(wrong()),
        None => Ok(Output::lines(text)),
    }
}

/// The text in quotes at the beginning, and what follows.
fn quoted(arguments: &str) -> Option<(&str, &str)> {
    let text = arguments.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = text.find(|character| match character {
        _ if escaped => {
            escaped = false;
            false
        }
        '\\' => {
            escaped = true;
            false
        }
        character => character == '"',
    })?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// The expressions between commas that stand in no brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let Some(text) = text.trim_start().strip_prefix(',') else {
        return Vec::new();
    };
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0, None);
    for (at, character) in text.char_indices() {
        match (character, quote) {
            (_, Some(open)) => quote = quote.filter(|_| character != open),
            ('"' | '\'', None) => quote = Some(character),
            ('(' | '[' | '{', None) => depth += 1,
            (')' | ']' | '}', None) => depth -= 1,
            (',', None) if depth == 0 => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts.into_iter().map(str::trim).collect()
}

/// `\n`, `\t`, `\"`, `\\` and octal numbers, as in C.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        let mut octal = String::new();
        while octal.len() < 3
            && let Some(digit) = characters.next_if(|next| next.is_digit(8))
        {
            octal.push(digit);
        }
        if let Ok(number) = u8::from_str_radix(&octal, 8) {
            out.push(char::from(number));
            continue;
        }
        match characters.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('a') => out.push('\u{7}'),
            Some('e') => out.push('\u{1b}'),
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// `%-8.3lu` without its first character.
struct Conversion<'a> {
    flags: &'a str,
    width: usize,
    precision: Option<usize>,
    /// A conversion of integers.
    bits: u32,
    letter: char,
    length: usize,
}

impl<'a> Conversion<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let part = |from: usize, of: fn(char) -> bool| {
            let rest = text.get(from..)?;
            rest.get(..rest.find(|next| !of(next)).unwrap_or(rest.len()))
        };
        let flags = part(0, |next| "-+ #0".contains(next))?;
        let width = part(flags.len(), |next| next.is_ascii_digit())?;
        let mut at = flags.len() + width.len();
        let mut precision = None;
        if text.get(at..)?.starts_with('.') {
            let digits = part(at + 1, |next| next.is_ascii_digit())?;
            at += 1 + digits.len();
            precision = Some(digits.parse().unwrap_or(0));
        }
        let size = part(at, |next| "hlLzjt".contains(next))?;
        at += size.len();
        let bits = match size {
            "" => 32,
            "h" => 16,
            "hh" => 8,
            _ => 64,
        };
        let letter = text.get(at..)?.chars().next()?;
        Some(Self {
            flags,
            width: width.parse().unwrap_or(0).min(MAX_WIDTH),
            precision: precision.map(|digits: usize| digits.min(MAX_WIDTH)),
            bits,
            letter,
            length: at + letter.len_utf8(),
        })
    }

    /// The value of an expression as the conversion writes it; what is unknown is written as such.
    fn of(&self, eval: &EvalContext<'_>, expression: &str) -> Result<String> {
        let parsed = parse(expression, eval)?;
        let text = eval.evaluate(&parsed).and_then(|value| self.text(eval, &value));
        match text {
            Ok(text) => Ok(self.padded(text)),
            Err(failure) => Ok(ValueFormatter::failed(failure)?.text),
        }
    }

    /// The value of an argument as text.
    fn text(&self, eval: &EvalContext<'_>, value: &Value) -> std::result::Result<String, Failure> {
        let complex = || {
            Failure::Error(backtrail_values::Error(
                "no conversion prints a complex number; print its parts".to_owned(),
            ))
        };
        let integer = || -> std::result::Result<i128, Failure> {
            let number = match value.ty.is_scalar() {
                true => match eval.number(value)?.0 {
                    Number::Integer(number) => number,
                    Number::Float(number) => number as i128,
                    Number::Complex(_) => return Err(complex()),
                },
                false => i128::from(eval.pointer(value)?),
            };
            Ok(match (self.bits, "di".contains(self.letter)) {
                (8, true) => i128::from(number as i8),
                (16, true) => i128::from(number as i16),
                (32, true) => i128::from(number as i32),
                (_, true) => i128::from(number as i64),
                (64, false) => i128::from(number as u64),
                (bits, false) => number & ((1 << bits) - 1),
            })
        };
        let float = || -> std::result::Result<f64, Failure> {
            match eval.number(value)?.0 {
                Number::Integer(number) => Ok(number as f64),
                Number::Float(number) => Ok(number),
                Number::Complex(_) => Err(complex()),
            }
        };
        let alternate = self.flags.contains('#');
        Ok(match self.letter {
            'd' | 'i' => integer()?.to_string(),
            'u' => (integer()? as u64).to_string(),
            'x' if alternate => format!("{:#x}", integer()? as u64),
            'x' => format!("{:x}", integer()? as u64),
            'X' => format!("{:X}", integer()? as u64),
            'o' => format!("{:o}", integer()? as u64),
            'p' => format!("{:#x}", eval.pointer(value)?),
            'c' => char::from(integer()? as u8).to_string(),
            'f' | 'F' => format!("{:.*}", self.precision.unwrap_or(6), float()?),
            'e' => format!("{:.*e}", self.precision.unwrap_or(6), float()?),
            'g' => float()?.to_string(),
            's' => self.string(eval, value)?,
            other => {
                return Err(Failure::Error(backtrail_values::Error(format!(
                    "printf does not support %{other}; it supports %d i u x X o p c s f e g"
                ))));
            }
        })
    }

    fn string(&self, eval: &EvalContext<'_>, value: &Value) -> std::result::Result<String, Failure> {
        let at = match value.address() {
            Some(at) if !value.ty.is_scalar() => at,
            _ => eval.pointer(value)?,
        };
        let text = ValueFormatter::new(eval, None).string_at(at);
        let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let text = bare.map_or_else(|| text.clone(), unescaped);
        Ok(match self.precision {
            Some(longest) => text.chars().take(longest).collect(),
            None => text,
        })
    }

    fn padded(&self, text: String) -> String {
        let width = self.width;
        if self.flags.contains('-') {
            format!("{text:<width$}")
        } else if self.flags.contains('0') && self.letter != 's' {
            let (sign, digits) = match text.strip_prefix('-') {
                Some(digits) => ("-", digits),
                None => ("", &*text),
            };
            let width = width.saturating_sub(sign.len());
            format!("{sign}{digits:0>width$}")
        } else {
            format!("{text:>width$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        assert_eq!(quoted("\"a\\\"b\", 1"), Some(("a\\\"b", ", 1")));
        assert_eq!(quoted("no"), None);
        assert_eq!(split(", f(1, 2), \"a,b\", c"), ["f(1, 2)", "\"a,b\"", "c"]);
        assert_eq!(unescaped("a\\n\\101\\\\"), "a\nA\\");
        let conversion = Conversion::read("-08.3lu!").unwrap();
        assert_eq!(
            (conversion.flags, conversion.width, conversion.precision),
            ("-0", 8, Some(3))
        );
        assert_eq!((conversion.letter, conversion.length), ('u', 7));
        assert_eq!(conversion.bits, 64);
        assert!(Conversion::read("").is_none());
    }

    #[test]
    fn fields_are_padded() {
        let padded = |format: &str, text: &str| Conversion::read(format).unwrap().padded(text.to_owned());
        assert_eq!(padded("5d", "42"), "   42");
        assert_eq!(padded("-5d", "42"), "42   ");
        assert_eq!(padded("05d", "-42"), "-0042");
    }
}
