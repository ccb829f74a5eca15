//! The errors of an export.

use backtrail_decoder::Canceled;
use backtrail_pt::Tid;

/// The reason why a trace could not be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The debugger reported an error.
    #[error(transparent)]
    Debugger(#[from] backtrail_debugger::Error),
    /// A profile could not be built or written.
    #[error(transparent)]
    Profile(backtrail_profile::Error),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Io(#[from] std::io::Error),
    /// There are no instructions between the positions.
    #[error("the range is empty; --from must be before --to")]
    EmptyRange,
    /// The positions belong to two threads.
    #[error("--thread, --from and --to name more than one thread; a range belongs to one thread")]
    OneThread,
    /// There is no history, as when only a core was opened.
    #[error("there is no history to export; the threads only have their state at the crash")]
    NoHistory,
    /// The thread has no timestamps.
    #[error("the trace of thread {0} has no timestamps; use `--clock instructions`")]
    NoTime(Tid),
    /// The profile's numeric limits are exceeded.
    #[error(
        "the export exceeds the limits of a profile; select a part with `--thread`, `--from`, `--to` or `--depth`"
    )]
    Full,
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns whether the reader of the output closed its end of the pipe.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl From<Canceled> for Error {
    fn from(canceled: Canceled) -> Self {
        Self::Debugger(canceled.into())
    }
}

impl From<backtrail_profile::Error> for Error {
    fn from(error: backtrail_profile::Error) -> Self {
        match error {
            backtrail_profile::Error::Io(error) => Self::Io(error),
            backtrail_profile::Error::Full => Self::Full,
            error => Self::Profile(error),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Io(error.into())
    }
}
