//! The reasons why a request fails.

use backtrail_debugger::Error;

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The debugger says why.
    #[error(transparent)]
    Debugger(#[from] Error),
    /// The arguments are not what the request takes.
    #[error("invalid arguments of `{command}`: {problem}")]
    Arguments {
        /// The request.
        command: String,
        /// The problem.
        problem: String,
    },
    /// There is no such request.
    #[error("unknown request `{0}`")]
    Unknown(String),
    /// Nothing is open.
    #[error("no trace is open yet; `launch` opens one")]
    NotLaunched,
    /// An identifier of before the last move.
    #[error("the frame is from an earlier stop; request the stack again")]
    Stale,
    /// The expression below the mouse, or one that is copied, has no value.
    #[error("{0}")]
    NoValue(String),
    /// The trace cannot be fetched.
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

    /// Returns whether the client should show the failure to the user.
    ///
    /// Cancellation and expressions below the mouse without a value are not shown.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        !self.is_cancelled() && !matches!(self, Self::Unknown(_) | Self::Stale | Self::NoValue(_))
    }
}
