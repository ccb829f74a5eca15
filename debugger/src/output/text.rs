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

    /// Appends a line.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref().trim_end());
        self.text.push('\n');
    }

    /// The text in its color.
    #[must_use]
    pub fn paint(&self, paint: Paint, text: impl AsRef<str>) -> String {
        let text = text.as_ref();
        if !self.color {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Function => "33",
            Paint::Place => "36",
            Paint::Faint => "2",
            Paint::Alarm => "1;31",
            Paint::Current => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// What was made.
    #[must_use]
    pub fn into_string(self) -> String {
        self.text
    }
}
