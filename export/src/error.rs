//! Why something cannot be exported.

use backtrail_decoder::Canceled;
use backtrail_pt::Tid;

/// Why something cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace could not be asked.
    #[error(transparent)]
    Debugger(#[from] backtrail_debugger::Error),
    /// The output could not be written.
    #[error("could not write the output: {0}")]
    Io(#[from] std::io::Error),
    /// There is nothing between the positions.
    #[error("the range ends before it begins; --from is a position before --to")]
    EmptyRange,
    /// Positions of two threads.
    #[error("--thread, --from and --to name more than one thread; a range is one of a single thread")]
    OneThread,
    /// Only a core was opened, for example.
    #[error("there is no history to export: the threads have only their state at the crash")]
    NoHistory,
    /// No clock.
    #[error("the trace of thread {0} has no times; `--clock instructions` counts instructions instead")]
    NoTime(Tid),
    /// The format's numbers end there.
    #[error("{0} has no room for more; `--thread`, `--from`, `--to` and `--depth` bound what is exported")]
    Full(&'static str),
}

/// A result with [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The reader of the output closed its end.
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

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Io(error.into())
    }
}
