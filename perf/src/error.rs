//! What can be wrong with perf's bytes.

/// Why bytes were refused. Every variant speaks of malformed input: this crate does no I/O.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end inside a structure.
    #[error("the {what} at offset {offset:#x} is cut short")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Where it starts.
        offset: u64,
    },
    /// A field's value cannot be.
    #[error("the {what} at offset {offset:#x} is not possible: {problem}")]
    Invalid {
        /// The structure.
        what: &'static str,
        /// Where it starts.
        offset: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A form of the file that is not read.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Whether outside input was malformed, as against valid but not read by us.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        !matches!(self, Self::Unsupported(_))
    }
}
