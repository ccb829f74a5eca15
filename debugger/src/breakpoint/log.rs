//! Breakpoints that stop nothing: each hit is logged, by a message with values in it.

use crate::error::{Error, Result};

/// A message: text, and expressions in braces, as in `count is {count}`. A brace itself is written
/// `\\{`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Vec<MessagePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum MessagePart {
    Text(String),
    Expression(String),
}

/// A hit that was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The breakpoint.
    pub number: u32,
    /// Where, as `goto` takes it.
    pub position: String,
    /// The message with its values.
    pub text: String,
}

/// The logged messages, in the order of their hits.
#[derive(Clone, Debug, Default)]
pub struct Log {
    hits: Vec<Logged>,
    dropped: u64,
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// When a brace is not closed, or there is nothing in braces.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = Vec::new();
        let mut open = String::new();
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if matches!(characters.peek(), Some('{' | '}')) => open.extend(characters.next()),
                '{' => {
                    parts.push(MessagePart::Text(std::mem::take(&mut open)));
                    parts.push(MessagePart::Expression(expression(&mut characters)?));
                }
                _ => open.push(character),
            }
        }
        parts.push(MessagePart::Text(open));
        parts.retain(|part| *part != MessagePart::Text(String::new()));
        Ok(Self(parts))
    }

    /// The expressions in it.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            MessagePart::Expression(expression) => Some(expression.as_str()),
            MessagePart::Text(_) => None,
        })
    }

    /// The message with its values.
    ///
    /// # Errors
    /// Those of `value`.
    pub fn render(&self, value: &mut dyn FnMut(&str) -> Result<String>) -> Result<String> {
        let mut rendered = String::new();
        for part in &self.0 {
            match part {
                MessagePart::Text(text) => rendered.push_str(text),
                MessagePart::Expression(expression) => rendered.push_str(&value(expression)?),
            }
        }
        Ok(rendered)
    }
}

/// Returns the text up to the closing brace. The text can contain pairs of braces.
fn expression(characters: &mut impl Iterator<Item = char>) -> Result<String> {
    let mut text = String::new();
    let mut open = 1usize;
    for character in characters {
        match character {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return match text.trim() {
                "" => Err(Error::Cannot(
                    "there is no expression between the braces".to_owned(),
                )),
                text => Ok(text.to_owned()),
            };
        }
        text.push(character);
    }
    Err(Error::Cannot(format!(
        "the brace before \"{text}\" is not closed; write a literal brace as \\{{"
    )))
}

impl Log {
    /// No more hits are kept until they are taken.
    const MOST: usize = 5000;

    /// Adds a hit.
    pub fn add(&mut self, hit: Logged) {
        match self.hits.len() < Self::MOST {
            true => self.hits.push(hit),
            false => self.dropped = self.dropped.saturating_add(1),
        }
    }

    /// More hits would not be kept.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.hits.len() >= Self::MOST
    }

    /// Takes the hits, and how many there were more.
    pub fn take(&mut self) -> (Vec<Logged>, u64) {
        (std::mem::take(&mut self.hits), std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let message = Message::parse(text).unwrap();
        message
            .render(&mut |expression| Ok(format!("<{expression}>")))
            .unwrap()
    }

    #[test]
    fn expressions_stand_in_braces() {
        assert_eq!(rendered("n is {n}, m {a[1]} "), "n is <n>, m <a[1]> ");
        assert_eq!(rendered("{ a }{b}"), "<a><b>");
        assert_eq!(rendered("plain"), "plain");
        assert_eq!(rendered(r"\{n\} \x"), r"{n} \x");
        let message = Message::parse("{a} {b}").unwrap();
        assert_eq!(message.expressions().collect::<Vec<_>>(), ["a", "b"]);
        for wrong in ["{n", "{}", "a { }"] {
            assert!(Message::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_log_is_bounded() {
        let mut log = Log::default();
        for _ in 0..Log::MOST + 3 {
            log.add(Logged {
                number: 1,
                position: "t1#1".to_owned(),
                text: String::new(),
            });
        }
        let (hits, dropped) = log.take();
        assert_eq!((hits.len(), dropped), (Log::MOST, 3));
        assert!(log.take().0.is_empty());
    }
}
