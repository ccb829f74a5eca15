//! The errors of typed lines: names of no command, and arguments that a command does not take.

use backtrail_debugger::Error;

/// The reason why a typed line has no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// No command has this name.
    #[error("undefined command: \"{name}\"; {}", hint(similar.as_deref()))]
    Unknown {
        /// The word.
        name: String,
        /// The command with the most similar name.
        similar: Option<String>,
    },
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

/// The least similarity of a command that is suggested, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;

impl LineError {
    /// Returns the error for a word that is no command.
    pub(super) fn unknown<'a>(name: &str, commands: impl Iterator<Item = &'a str>) -> Self {
        let similarity = |command: &str| strsim::normalized_damerau_levenshtein(name, command);
        let nearest = commands
            .map(|command| (similarity(command), command))
            .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
            .max_by(|one, other| one.0.total_cmp(&other.0));
        Self::Unknown {
            name: name.to_owned(),
            similar: nearest.map(|(_, command)| command.to_owned()),
        }
    }
}

fn hint(similar: Option<&str>) -> String {
    similar.map_or_else(
        || "try `help`".to_owned(),
        |similar| format!("did you mean `{similar}`?"),
    )
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
