//! Text for a person, with color where it is wanted.

use super::visible::is_invisible;
use std::hash::{BuildHasher, RandomState};

/// The role of a piece of text, which determines its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// A function name.
    Function,
    /// A file name or a line number.
    Place,
    /// A position, a time: what can be left out.
    Faint,
    /// A warning.
    Alarm,
    /// The current line or instruction.
    Current,
}

impl Paint {
    const ALL: [Self; 5] = [
        Self::Function,
        Self::Place,
        Self::Faint,
        Self::Alarm,
        Self::Current,
    ];
    /// The escape sequence that ends a color.
    const END: &'static str = "\x1b[0m";
    /// The placeholder for the end of a color in an unfinished line.
    const END_LETTER: char = 'e';

    /// The placeholder for its start in an unfinished line.
    fn letter(self) -> char {
        match self {
            Self::Function => 'f',
            Self::Place => 'p',
            Self::Faint => 'i',
            Self::Alarm => 'a',
            Self::Current => 'c',
        }
    }

    /// The escape sequence that starts the color (ECMA-48, section 8.3.117).
    fn code(self) -> &'static str {
        match self {
            Self::Function => "\x1b[33m",
            Self::Place => "\x1b[36m",
            Self::Faint => "\x1b[2m",
            Self::Alarm => "\x1b[1;31m",
            Self::Current => "\x1b[1m",
        }
    }
}

/// Lines of text being made.
#[derive(Clone, Debug, Default)]
pub struct Text {
    text: String,
    /// The character that starts a placeholder. Names cannot contain it, because it is chosen at
    /// random.
    mark: Option<String>,
}

impl Text {
    /// Without color.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// With ANSI colors when `color`.
    #[must_use]
    pub fn new(color: bool) -> Self {
        let random = || RandomState::new().hash_one(0);
        Self {
            text: String::new(),
            mark: color.then(|| format!("\u{fdd0}{:016x}", random())),
        }
    }

    /// Appends a line. [Invisible](is_invisible) characters of a name or a source line are shown as
    /// U+FFFD.
    pub fn line(&mut self, line: impl AsRef<str>) {
        let mut rest = line.as_ref().trim_end();
        while let Some(char) = rest.chars().next() {
            let mark = self.mark.as_deref();
            let color = mark.and_then(|mark| color_at(rest.strip_prefix(mark)?));
            if let Some((code, following)) = color {
                self.text.push_str(code);
                rest = following;
                continue;
            }
            let is_bad = is_invisible(char) && char != '\t';
            self.text.push(if is_bad { '\u{fffd}' } else { char });
            rest = rest.get(char.len_utf8()..).unwrap_or_default();
        }
        self.text.push('\n');
    }

    /// Appends text of several lines.
    pub fn lines(&mut self, text: impl AsRef<str>) {
        for line in text.as_ref().trim_end().split('\n') {
            self.line(line);
        }
    }

    /// The text in its color.
    #[must_use]
    pub fn paint(&self, paint: Paint, text: impl AsRef<str>) -> String {
        let text = text.as_ref();
        match &self.mark {
            Some(mark) => format!("{mark}{}{text}{mark}{}", paint.letter(), Paint::END_LETTER),
            None => text.to_owned(),
        }
    }

    /// Returns the finished text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.text
    }
}

/// Splits text after a placeholder into the color change of its letter and the rest.
fn color_at(text: &str) -> Option<(&'static str, &str)> {
    let (letter, following) = (text.chars().next()?, text.get(1..)?);
    let begun = Paint::ALL.into_iter().find(|paint| paint.letter() == letter);
    let code = begun.map(Paint::code);
    code.or((letter == Paint::END_LETTER).then_some(Paint::END))
        .map(|code| (code, following))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_command_the_terminal_and_colors_do() {
        let name = "a\x1b[31m\x1b]0;t\x07b\tc\u{9b}";
        let mut plain = Text::plain();
        plain.line(plain.paint(Paint::Function, name));
        assert_eq!(
            plain.into_string(),
            "a\u{fffd}[31m\u{fffd}]0;t\u{fffd}b\tc\u{fffd}\n"
        );
        let mut colored = Text::new(true);
        colored.line(colored.paint(Paint::Alarm, name));
        let expected = "\x1b[1;31ma\u{fffd}[31m\u{fffd}]0;t\u{fffd}b\tc\u{fffd}\x1b[0m\n";
        assert_eq!(colored.into_string(), expected);
    }

    #[test]
    fn names_cannot_set_our_colors_or_end_a_line() {
        let own = "x\x1b[1;31my\x1b[0m\nforged\r\u{2028}\u{202e}z\u{fdd0}0000000000000000a";
        for color in [false, true] {
            let mut text = Text::new(color);
            text.line(format!("{own} {}", text.paint(Paint::Function, own)));
            let shown = text.into_string();
            assert_eq!(
                shown.matches('\x1b').count(),
                if color { 2 } else { 0 },
                "{shown:?}"
            );
            assert_eq!(shown.lines().count(), 1, "{shown:?}");
        }
        let mut text = Text::plain();
        text.lines("one\n two\x1b\n");
        assert_eq!(text.into_string(), "one\n two\u{fffd}\n");
    }
}
