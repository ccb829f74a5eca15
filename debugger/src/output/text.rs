//! Text for a person, with color where it is wanted.

/// What a piece of text is, which decides its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// A function name.
    Function,
    /// A file name or a line number.
    Place,
    /// A position, a time: what can be left out.
    Faint,
    /// What must not be overlooked.
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
    /// What ends a color.
    const END: &'static str = "\x1b[0m";

    /// What begins its color (ECMA-48, section 8.3.117).
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
    color: bool,
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
        Self {
            text: String::new(),
            color,
        }
    }

    /// Appends a line. What would command the terminal, in a name or a source line, is shown as U+FFFD.
    pub fn line(&mut self, line: impl AsRef<str>) {
        let mut rest = line.as_ref().trim_end();
        while let Some(at) = rest.find(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
            let (shown, control) = rest.split_at(at);
            self.text.push_str(shown);
            let own = Paint::ALL.map(Paint::code).into_iter().chain([Paint::END]);
            let own = own.filter(|_| self.color).find(|own| control.starts_with(own));
            self.text.push_str(own.unwrap_or("\u{fffd}"));
            let passed = own.map_or_else(
                || control.chars().next().map_or(0, char::len_utf8),
                |own| own.len(),
            );
            rest = control.get(passed..).unwrap_or_default();
        }
        self.text.push_str(rest);
        self.text.push('\n');
    }

    /// The text in its color.
    #[must_use]
    pub fn paint(&self, paint: Paint, text: impl AsRef<str>) -> String {
        let text = text.as_ref();
        if !self.color {
            return text.to_owned();
        }
        format!("{}{text}{}", paint.code(), Paint::END)
    }

    /// What was made.
    #[must_use]
    pub fn into_string(self) -> String {
        self.text
    }
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
}
