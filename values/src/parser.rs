//! Parses expressions of C, with what C++ and Rust write in the same way, and GDB's `@` and `$`.

use super::lexer::{Token, tokens};
use crate::error::{Error, Result};

/// Expressions are nested no deeper.
const MAX_DEPTH: u32 = 200;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// An integer, and its suffix.
    Integer(u64, String),
    /// A number with a fraction, and its suffix.
    Float(f64, String),
    /// A character.
    Character(u8),
    /// A string.
    Text(String),
    /// A character of the wide type that has this letter.
    WideCharacter(char, char),
    /// A string of the wide type that has this letter.
    WideText(char, String),
    /// A variable, enumerator or function, maybe with a path.
    Name(String),
    /// A name in a source file.
    InFile(String, String),
    /// A register, or an earlier value.
    Dollar(String),
    /// An operator before its operand.
    Unary(&'static str, Box<Self>),
    /// An operator between its operands.
    Binary(&'static str, Box<Self>, Box<Self>),
    /// `a ? b : c`.
    Choice(Box<[Self; 3]>),
    /// A member, of a record or of what a pointer points to.
    Member(Box<Self>, String),
    /// `a[i]`.
    Index(Box<Self>, Box<Self>),
    /// `a.size()`, or `p->size()`: what a function that belongs to a type of a library would give.
    Method {
        /// The object.
        value: Box<Self>,
        /// Whether the object is a pointer.
        arrow: bool,
        /// The method's name.
        name: String,
        /// The arguments.
        arguments: Vec<Self>,
    },
    /// A cast.
    Cast(TypeName, Box<Self>),
    /// The size of a type.
    SizeOf(TypeName),
    /// A type by itself, for `ptype`, `whatis` and `sizeof`.
    Type(TypeName),
}

/// A type as written.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    /// Its name; of one built in, as DWARF for C has it.
    pub base: String,
    /// The declarator: `*`, `&`, and array sizes, innermost first.
    pub suffixes: Vec<Suffix>,
}

/// A suffix that makes a type of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suffix {
    /// A pointer to it.
    Pointer,
    /// A reference to it.
    Reference,
    /// An array of this size.
    Array(u64),
    /// A function that returns it.
    Function,
}

/// Distinguishes types from variables.
pub trait Names {
    /// Returns whether a name is a type here, and not a variable.
    fn is_type(&self, name: &str) -> bool;
}

/// Parses all of `text`.
pub fn parse(text: &str, names: &dyn Names) -> Result<Expression> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        names,
        depth: 0,
    };
    let expression = match parser.whole_type() {
        Some(name) => Expression::Type(name),
        None => parser.expression(0)?,
    };
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.unexpected()),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    names: &'a dyn Names,
    depth: u32,
}

/// The operators between operands, and how tightly they bind.
const BINARY: [(&str, u32); 20] = [
    ("||", 2),
    ("&&", 3),
    ("|", 4),
    ("^", 5),
    ("&", 6),
    ("==", 7),
    ("!=", 7),
    ("<", 8),
    (">", 8),
    ("<=", 8),
    (">=", 8),
    ("<<", 9),
    (">>", 9),
    ("@", 10),
    ("+", 11),
    ("-", 11),
    ("*", 12),
    ("/", 12),
    ("%", 12),
    (",", 0),
];

const WORDS: [&str; 10] = [
    "unsigned", "signed", "int", "char", "short", "long", "float", "double", "void", "_Bool",
];
const QUALIFIERS: [&str; 3] = ["const", "volatile", "restrict"];
const TAGS: [&str; 4] = ["struct", "union", "class", "enum"];

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(found);
        found
    }

    fn require(&mut self, sign: &str) -> Result<()> {
        match self.sign(sign) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn unexpected(&self) -> Error {
        let what = match self.peek() {
            None => "unexpected end of the expression".to_owned(),
            Some(Token::Sign("=")) => {
                "assignment is not possible in a recorded program; use \"==\" to compare".to_owned()
            }
            Some(Token::Sign("(")) => "functions cannot be called in a recorded program".to_owned(),
            Some(Token::Sign(sign)) => format!("\"{sign}\" is not expected here"),
            Some(Token::Name(name)) => format!("\"{name}\" is not expected here"),
            Some(_) => "a value is not expected here".to_owned(),
        };
        Error(what)
    }

    fn expression(&mut self, least: u32) -> Result<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error("the expression is nested too deeply".to_owned()));
        }
        let mut left = self.unary()?;
        while let Some(&Token::Sign(sign)) = self.peek() {
            if sign == "?" && least <= 1 {
                self.at += 1;
                let yes = self.expression(0)?;
                self.require(":")?;
                let no = self.expression(1)?;
                left = Expression::Choice(Box::new([left, yes, no]));
                continue;
            }
            let found = BINARY.iter().find(|(operator, _)| *operator == sign);
            let Some(&(operator, binding)) = found.filter(|(_, binding)| *binding >= least.max(1)) else {
                break;
            };
            self.at += 1;
            let right = self.expression(binding + 1)?;
            left = Expression::Binary(operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error("the expression is nested too deeply".to_owned()));
        }
        let found = self.unary_inside();
        self.depth -= 1;
        found
    }

    fn unary_inside(&mut self) -> Result<Expression> {
        // Two signs that are one token elsewhere.
        for (sign, twice) in [("&&", "&")] {
            if self.sign(sign) {
                let inner = Expression::Unary(twice, Box::new(self.unary()?));
                return Ok(Expression::Unary(twice, Box::new(inner)));
            }
        }
        for sign in ["*", "&", "-", "+", "!", "~"] {
            if self.sign(sign) {
                return Ok(Expression::Unary(sign, Box::new(self.unary()?)));
            }
        }
        if self.peek() == Some(&Token::Name("sizeof".to_owned())) {
            self.at += 1;
            if let Some(name) = self.type_in_parentheses() {
                return Ok(Expression::SizeOf(name));
            }
            return Ok(Expression::Unary("sizeof", Box::new(self.unary()?)));
        }
        if let Some(name) = self.type_in_parentheses() {
            return Ok(Expression::Cast(name, Box::new(self.unary()?)));
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<Expression> {
        let mut value = self.primary()?;
        loop {
            if self.sign("[") {
                let index = self.expression(0)?;
                self.require("]")?;
                value = Expression::Index(Box::new(value), Box::new(index));
            } else if let Some(sign) = [".", "->"].into_iter().find(|sign| self.sign(sign)) {
                let name = match self.peek().cloned() {
                    Some(Token::Name(name)) => {
                        self.at += 1;
                        self.path(name)?
                    }
                    Some(Token::Integer(number, _)) => {
                        let name = format!("__{number}");
                        self.at += 1;
                        name
                    }
                    _ => return Err(self.unexpected()),
                };
                let value_of = Box::new(value);
                value = match self.sign("(") {
                    true => Expression::Method {
                        value: value_of,
                        arrow: sign == "->",
                        name,
                        arguments: self.arguments()?,
                    },
                    false => Expression::Member(value_of, name),
                };
            } else if matches!(self.peek(), Some(Token::Sign("("))) {
                return Err(self.unexpected());
            } else {
                return Ok(value);
            }
        }
    }

    /// Parses the arguments in parentheses after the name of a function, of which the first is
    /// read.
    fn arguments(&mut self) -> Result<Vec<Expression>> {
        let mut arguments = Vec::new();
        if self.sign(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression(0)?);
            if !self.sign(",") {
                self.require(")")?;
                return Ok(arguments);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression> {
        let Some(token) = self.peek().cloned() else {
            return Err(self.unexpected());
        };
        let start = self.at;
        self.at += 1;
        Ok(match token {
            Token::Integer(number, suffix) => Expression::Integer(number, suffix),
            Token::Float(number, suffix) => Expression::Float(number, suffix),
            Token::Character(byte) => Expression::Character(byte),
            Token::Text(text) => Expression::Text(text),
            Token::WideCharacter(letter, character) => Expression::WideCharacter(letter, character),
            Token::WideText(letter, text) => Expression::WideText(letter, text),
            Token::Dollar(name) => Expression::Dollar(name),
            Token::Name(name) => Expression::Name(self.path(name)?),
            Token::Quoted(name) => {
                if self.sign("::") {
                    match self.peek().cloned() {
                        Some(Token::Name(inner)) => {
                            self.at += 1;
                            return Ok(Expression::InFile(name, self.path(inner)?));
                        }
                        _ => return Err(self.unexpected()),
                    }
                }
                Expression::Name(name)
            }
            Token::Sign("(") => {
                let inner = self.expression(0)?;
                self.require(")")?;
                inner
            }
            Token::Sign("::") => match self.peek().cloned() {
                Some(Token::Name(name)) => {
                    self.at += 1;
                    Expression::Name(self.path(name)?)
                }
                _ => return Err(self.unexpected()),
            },
            Token::Sign(_) => {
                self.at = start;
                return Err(self.unexpected());
            }
        })
    }

    /// The rest of `a::b::c`.
    fn path(&mut self, first: String) -> Result<String> {
        let mut path = first;
        while self.sign("::") {
            match self.peek() {
                Some(Token::Name(name)) => {
                    path.push_str("::");
                    path.push_str(name);
                    self.at += 1;
                }
                _ => return Err(self.unexpected()),
            }
        }
        Ok(path)
    }

    /// All that is left is a type.
    fn whole_type(&mut self) -> Option<TypeName> {
        let start = self.at;
        let found = self.type_name().filter(|_| self.peek().is_none());
        if found.is_none() {
            self.at = start;
        }
        found
    }

    fn type_in_parentheses(&mut self) -> Option<TypeName> {
        let start = self.at;
        let found = match self.sign("(") {
            true => self.type_name().filter(|_| self.sign(")")),
            false => None,
        };
        if found.is_none() {
            self.at = start;
        }
        found
    }

    fn word(&mut self, words: &[&'static str]) -> Option<&'static str> {
        let Some(Token::Name(name)) = self.peek() else {
            return None;
        };
        let found = words.iter().find(|word| *word == name).copied();
        self.at += usize::from(found.is_some());
        found
    }

    fn skip_qualifiers(&mut self) {
        while self.word(&QUALIFIERS).is_some() {}
    }

    fn type_name(&mut self) -> Option<TypeName> {
        self.skip_qualifiers();
        let base = self.base_type()?;
        self.skip_qualifiers();
        let mut suffixes = Vec::new();
        loop {
            if self.sign("*") {
                suffixes.push(Suffix::Pointer);
                self.skip_qualifiers();
            } else if self.sign("&") {
                suffixes.push(Suffix::Reference);
            } else {
                break;
            }
        }
        // In a pointer to a function or an array, the part in parentheses applies to the part after
        // it.
        let mut inner = 0;
        let before = self.at;
        if self.sign("(") {
            while self.sign("*") {
                inner += 1;
            }
            if inner == 0 || !self.sign(")") {
                self.at = before;
                inner = 0;
            }
        }
        let mut counts = Vec::new();
        while matches!(self.peek(), Some(Token::Sign("["))) {
            self.at += 1;
            let Some(Token::Integer(count, _)) = self.peek() else {
                return None;
            };
            counts.push(Suffix::Array(*count));
            self.at += 1;
            if !self.sign("]") {
                return None;
            }
        }
        suffixes.extend(counts.into_iter().rev());
        if inner > 0 && self.sign("(") {
            while !self.sign(")") {
                self.peek()?;
                self.at += 1;
            }
            suffixes.push(Suffix::Function);
        }
        suffixes.extend((0..inner).map(|_| Suffix::Pointer));
        (suffixes.len() <= 32).then_some(TypeName { base, suffixes })
    }

    fn base_type(&mut self) -> Option<String> {
        if self.word(&TAGS).is_some() {
            let Some(Token::Name(name)) = self.peek().cloned() else {
                return None;
            };
            self.at += 1;
            return self.path(name).ok();
        }
        let mut words = Vec::new();
        while let Some(word) = self.word(&WORDS) {
            words.push(word);
            self.skip_qualifiers();
        }
        if !words.is_empty() {
            return built_in(&words).map(str::to_owned);
        }
        let start = self.at;
        let (Some(Token::Name(name)) | Some(Token::Quoted(name))) = self.peek().cloned() else {
            return None;
        };
        self.at += 1;
        let path = self.path(name).ok().filter(|path| self.names.is_type(path));
        if path.is_none() {
            self.at = start;
        }
        path
    }
}

/// The name that GDB has for a type of such words.
fn built_in(words: &[&str]) -> Option<&'static str> {
    let count = |word| words.iter().filter(|found| **found == word).count();
    let unsigned = count("unsigned") > 0;
    if count("_Bool") > 0 {
        return Some("_Bool");
    }
    if count("void") > 0 {
        return Some("void");
    }
    if count("char") > 0 {
        return Some(match (unsigned, count("signed") > 0) {
            (true, _) => "unsigned char",
            (_, true) => "signed char",
            _ => "char",
        });
    }
    if count("float") > 0 {
        return Some("float");
    }
    if count("double") > 0 {
        return Some(if count("long") > 0 {
            "long double"
        } else {
            "double"
        });
    }
    Some(match (count("short"), count("long"), unsigned) {
        (1, _, false) => "short",
        (1, _, true) => "unsigned short",
        (_, 1, false) => "long",
        (_, 1, true) => "unsigned long",
        (_, 2, false) => "long long",
        (_, 2, true) => "unsigned long long",
        (0, 0, true) => "unsigned int",
        (0, 0, false) => "int",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedNames;

    impl Names for FixedNames {
        fn is_type(&self, name: &str) -> bool {
            matches!(name, "node" | "ns::box")
        }
    }

    fn shown(expression: &Expression) -> String {
        match expression {
            Expression::Integer(number, _) => number.to_string(),
            Expression::Name(name) => name.clone(),
            Expression::InFile(file, name) => format!("{file}:{name}"),
            Expression::Dollar(name) => format!("${name}"),
            Expression::Unary(sign, inner) => format!("({sign}{})", shown(inner)),
            Expression::Binary(sign, left, right) => format!("({} {sign} {})", shown(left), shown(right)),
            Expression::Choice(parts) => parts.iter().map(shown).collect::<Vec<_>>().join("?"),
            Expression::Member(value, name) => format!("{}.{name}", shown(value)),
            Expression::Index(value, index) => format!("{}[{}]", shown(value), shown(index)),
            Expression::Method {
                value,
                arrow,
                name,
                arguments,
            } => {
                let sign = if *arrow { "->" } else { "." };
                let arguments: Vec<_> = arguments.iter().map(shown).collect();
                format!("{}{sign}{name}({})", shown(value), arguments.join(", "))
            }
            Expression::Cast(name, value) => format!("({} {:?}){}", name.base, name.suffixes, shown(value)),
            Expression::SizeOf(name) | Expression::Type(name) => format!("{}{:?}", name.base, name.suffixes),
            other => format!("{other:?}"),
        }
    }

    #[track_caller]
    fn parses(text: &str, expected: &str) {
        assert_eq!(shown(&parse(text, &FixedNames).unwrap()), expected, "{text}");
    }

    #[test]
    fn operators_bind_as_in_c() {
        parses("1 + 2 * 3", "(1 + (2 * 3))");
        parses("1 - 2 - 3", "((1 - 2) - 3)");
        parses("a == b && c < d || e", "(((a == b) && (c < d)) || e)");
        parses("*p->next[1].x", "(*p.next[1].x)");
        parses("*array@len + 1", "((*array) @ (len + 1))");
        parses("a & 1 << 3", "(a & (1 << 3))");
        parses("-a ? b : c ? d : e", "(-a)?b?c?d?e");
        parses("&&x", "(&(&x))");
        parses("t.0.1", "t.__0.__1");
        parses("a.b->size() + m.at(1, -x).c", "(a.b->size() + m.at(1, (-x)).c)");
    }

    #[test]
    fn types_are_distinguished_from_values() {
        parses("(node *) p", "(node [Pointer])p");
        parses("(x) + 1", "(x + 1)");
        parses("(unsigned long int) -1", "(unsigned long [])(-1)");
        parses("(struct thing **) 0", "(thing [Pointer, Pointer])0");
        parses("sizeof(int[4])", "int[Array(4)]");
        parses("sizeof x", "(sizeofx)");
        parses("ns::box", "ns::box[]");
        parses("(int (*)(int, char)) f", "(int [Function, Pointer])f");
        parses("'a.c'::ns::x", "a.c:ns::x");
        parses("const char *", "char[Pointer]");
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in ["", "1 +", "a b", "f(1)", "x = 1", "(", "a[1", "a.", "::", "?"] {
            assert!(parse(text, &FixedNames).is_err(), "{text}");
        }
        assert!(parse(&"(".repeat(2000), &FixedNames).is_err());
        assert!(parse(&"-".repeat(2000), &FixedNames).is_err());
        assert!(parse(&"*".repeat(4000), &FixedNames).is_err());
    }
}
