//! Paths of C++ and Rust functions, without arguments, return types and template arguments.

use super::brackets::Brackets;

/// Operators of C++ that consist of symbols, longest first.
const SYMBOLS: &[&str] = &[
    "<=>", "<<=", ">>=", "->*", "()", "[]", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "->", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "=",
    "<", ">", ",",
];

/// Operators of C++ that consist of words, longest first.
const WORDS: &[&str] = &[" new[]", " delete[]", " new", " delete", " co_await"];

/// Words before a parenthesis that begins no list of arguments.
const TYPE_WORDS: &[&str] = &["decltype", "noexcept", "typeof", "requires", "__attribute__"];

/// Qualifiers that may be between a list of arguments and the rest of a path.
const QUALIFIERS: &[&str] = &[" const", " volatile", " &&", " &", " noexcept"];

/// Inline namespaces of C++ standard libraries, which depend on the library's version.
const INLINE_NAMESPACES: &[&str] = &["std::__cxx11::", "std::__1::", "std::__ndk1::"];

/// Returns the path of a function.
pub fn normalize(name: &str) -> String {
    let mut scanner = Scanner {
        text: name,
        at: 0,
        out: String::with_capacity(name.len().min(256)),
        open: Brackets::default(),
        is_conversion: false,
        operator_end: None,
    };
    while scanner.step() {}
    let mut path = scanner.out.trim().to_owned();
    for namespace in INLINE_NAMESPACES {
        if path.contains(namespace) {
            path = path.replace(namespace, "std::");
        }
    }
    path
}

/// The state of one pass over a name.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    out: String,
    open: Brackets,
    /// Whether a conversion operator is read, whose name has spaces.
    is_conversion: bool,
    /// The length of the output after the last operator of symbols.
    operator_end: Option<usize>,
}

impl<'a> Scanner<'a> {
    /// Reads one token. Returns false at the end of the path.
    fn step(&mut self) -> bool {
        let rest = self.rest();
        let Some(letter) = rest.chars().next() else {
            return false;
        };
        if letter == 'o' && self.read_operator() {
            return true;
        }
        self.at += letter.len_utf8();
        if self.open.is_dropping() {
            return self.skip(letter);
        }
        match letter {
            '<' => self.open_angle(rest),
            '(' => self.open_parenthesis(rest),
            '[' => self.open_square(rest),
            '{' => self.open_brace(rest),
            ')' if self.open.is_empty() => return false,
            '>' if self.text[..self.at].ends_with("->") => self.out.push('>'),
            '>' | ')' | ']' | '}' => {
                self.open.close(opening(letter));
                self.out.push(letter);
            }
            '\'' if rest.starts_with("'lambda") || rest.starts_with("'unnamed") => self.read_quoted(rest),
            '$' if rest.starts_with("$_") && self.is_at_segment() => self.read_numbered_lambda(),
            ' ' if self.open.is_empty() && !self.is_conversion => {
                // All before the last space is the return type, or a note such as "thunk to".
                let next = self.rest().trim_start_matches(' ');
                let is_pointer = next.starts_with("(*") || next.starts_with("(&");
                if is_pointer || !(next.is_empty() || next.starts_with(['<', '('])) {
                    self.out.clear();
                }
            }
            _ => self.out.push(letter),
        }
        true
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips a character of a dropped part. Returns false at the end of the path.
    fn skip(&mut self, letter: char) -> bool {
        match letter {
            '<' | '(' | '[' | '{' => self.open.open(letter, false),
            '>' if self.text[..self.at].ends_with("->") => {}
            '>' | ')' | ']' | '}' => {
                let closed = self.open.close(opening(letter));
                if closed.is_some_and(|closed| closed.bracket == '(') && self.open.is_empty() {
                    return self.continues_after_arguments();
                }
            }
            _ => {}
        }
        true
    }

    /// Returns whether the path goes on after arguments: with a local class, lambda or clone.
    fn continues_after_arguments(&mut self) -> bool {
        if self.out.is_empty() {
            return true;
        }
        let mut rest = self.rest();
        while let Some(shorter) = QUALIFIERS.iter().find_map(|word| rest.strip_prefix(word)) {
            rest = shorter;
        }
        if rest.starts_with("::") || rest.starts_with('[') {
            self.at = self.text.len() - rest.len();
            self.is_conversion = false;
            return true;
        }
        false
    }

    /// Returns whether a segment of a path begins here.
    fn is_at_segment(&self) -> bool {
        self.out.is_empty()
            || self.out.ends_with(['<', ' ', '&', '*', '(', ',', '['])
            || self.out.ends_with("::")
    }

    /// Reads `operator` with its symbol. Returns false if there is none.
    fn read_operator(&mut self) -> bool {
        let rest = self.rest();
        let Some(after) = rest.strip_prefix("operator") else {
            return false;
        };
        if self.text[..self.at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
            return false;
        }
        let symbol = SYMBOLS
            .iter()
            .chain(WORDS)
            .find(|symbol| after.starts_with(**symbol));
        let length = match symbol {
            Some(symbol) => symbol.len(),
            // A literal's suffix, or the type of a conversion, is read as text.
            None if after.starts_with("\"\"") => 2,
            None if after.starts_with(' ') => 1,
            None => return false,
        };
        if !self.open.is_dropping() {
            self.out.push_str(&rest[.."operator".len() + length]);
            self.is_conversion = symbol.is_none() && self.open.is_empty();
            self.operator_end = symbol.map(|_| self.out.len());
        }
        self.at += "operator".len() + length;
        true
    }

    fn open_angle(&mut self, rest: &str) {
        if rest.starts_with("<lambda") {
            self.open.open('<', false);
            self.out.push_str("{lambda}");
        } else if self.out.ends_with("::") && !rest.starts_with("<impl ") {
            // `f::<i32>` of Rust.
            self.out.truncate(self.out.len() - 2);
            self.open.open('<', false);
            self.out.push_str("<T>");
        } else if self.is_at_segment() && !self.is_conversion && self.operator_end != Some(self.out.len()) {
            // `<Type as Trait>` of Rust.
            self.open.open('<', true);
            self.out.push('<');
        } else {
            self.open.open('<', false);
            self.out.push_str("<T>");
        }
    }

    fn open_parenthesis(&mut self, rest: &str) {
        if !self.open.is_empty() || rest.starts_with("(anonymous ") {
            self.open.open('(', true);
            self.out.push('(');
        } else if rest.starts_with("(lambda") {
            self.open.open('(', false);
            self.out.push_str("{lambda}");
        } else if self.out.is_empty() && rest[1..].starts_with(['*', '&']) {
            // A function that returns a pointer to a function.
            self.at += 1;
        } else {
            if self.ends_with_type_word() {
                self.out.clear();
            }
            self.open.open('(', false);
        }
    }

    fn ends_with_type_word(&self) -> bool {
        let ends = |word: &&&str| {
            self.out
                .strip_suffix(**word)
                .is_some_and(|before| !before.ends_with(|letter: char| letter.is_alphanumeric()))
        };
        TYPE_WORDS.iter().any(|word| ends(&word))
    }

    fn open_square(&mut self, rest: &str) {
        // ABI tags of C++ and the disambiguators of Rust's crates are dropped.
        let digits = rest[1..]
            .bytes()
            .take(17)
            .take_while(u8::is_ascii_hexdigit)
            .count();
        let is_number = digits >= 8 && rest[1 + digits..].starts_with(']');
        let is_kept = !rest.starts_with("[abi:") && !is_number;
        self.open.open('[', is_kept);
        if is_kept {
            self.out.push('[');
        }
    }

    /// Opens `{{closure}}`, `{closure#0}`, `{lambda(int)#1}` or `{unnamed type#2}`.
    fn open_brace(&mut self, rest: &str) {
        let inner = rest.trim_start_matches('{');
        let braces = rest.len() - inner.len();
        for _ in 0..braces {
            self.open.open('{', false);
        }
        self.at += braces - 1;
        let is_word = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
        let word = &inner[..inner.find(|letter| !is_word(letter)).unwrap_or(inner.len())];
        self.out.push('{');
        self.out.push_str(word);
        self.out.push('}');
    }

    /// Reads `'lambda0'` or `'unnamed'`.
    fn read_quoted(&mut self, rest: &str) {
        match rest[1..].find('\'') {
            Some(length) => {
                self.at += length + 1;
                self.out.push_str("{lambda}");
            }
            None => self.out.push('\''),
        }
    }

    /// Reads `$_0`, a lambda.
    fn read_numbered_lambda(&mut self) {
        let rest = &self.rest()[1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += 1 + digits;
        self.out.push_str("{lambda}");
    }
}

fn opening(closing: char) -> char {
    match closing {
        '>' => '<',
        ')' => '(',
        ']' => '[',
        _ => '{',
    }
}
