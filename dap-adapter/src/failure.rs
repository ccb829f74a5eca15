//! Why a request could not be done.

use backtrail_debugger::Error;

/// Why a request could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The debugger says why.
    #[error(transparent)]
    Debugger(#[from] Error),
    /// The arguments are not what the request takes.
    #[error("the arguments are not what `{command}` takes: {problem}")]
    Arguments {
        /// The request.
        command: String,
        /// What is wrong.
        problem: String,
    },
    /// There is no such request.
    #[error("there is no request `{0}`")]
    Unknown(String),
    /// Nothing is open.
    #[error("no trace is open yet; `launch` opens one")]
    NotLaunched,
    /// An identifier of before the last move.
    #[error("this is of an earlier stop; ask for the stack again")]
    Stale,
    /// It cannot be had by its address.
    #[error(transparent)]
    Fetch(#[from] crate::fetch::Error),
    /// Anything else.
    #[error("{0}")]
    Cannot(String),
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The client asked for it to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(
            self,
            Self::Debugger(Error::Canceled) | Self::Fetch(crate::fetch::Error::Cancelled)
        )
    }

    /// Who shows the client's user something shows this; nobody needs to hear that he cancelled, or that a name he hovers over
    /// means nothing.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        !self.is_cancelled() && !matches!(self, Self::Unknown(_) | Self::Stale)
    }
}
