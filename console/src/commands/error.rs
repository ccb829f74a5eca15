//! The errors of typed lines: names of no command, and arguments that a command does not take.

use backtrail_debugger::Error;

/// The reason why a typed line has no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// No command has this name.
    #[error("undefined command: \"{0}\"; try `help`")]
    Unknown(String),
    /// The word abbreviates several commands.
    #[error("ambiguous command \"{name}\": {candidates}")]
    Ambiguous {
        /// The word.
        name: String,
        /// The commands.
        candidates: String,
    },
    /// The word is a command of GDB that recordings do not support.
    #[error("`{name}` is not supported: {reason}")]
    Unsupported {
        /// The command of GDB.
        name: String,
        /// The reason and the alternative.
        reason: &'static str,
    },
}

impl From<LineError> for Error {
    fn from(error: LineError) -> Self {
        Self::Cannot(error.to_string())
    }
}

/// Returns the error for arguments that a command does not take.
pub(super) fn misuse(problem: &str, usage: &str) -> Error {
    Error::Cannot(format!("{problem}; usage: {usage}"))
}
