//! The errors of opening a session and of moving in it, each a sentence that says what to do.

use backtrail_decoder::{Canceled, Position};
use backtrail_pt::Tid;

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bundle could not be opened.
    #[error(transparent)]
    Bundle(#[from] backtrail_bundle::Error),
    /// The user stopped it.
    #[error("canceled")]
    Canceled,
    /// The answer depends on history that is there, and not decoded yet: see
    /// [`Navigator::decode_earlier`](crate::Navigator::decode_earlier).
    #[error("this needs the beginning of the history, which is not decoded yet")]
    Earlier,
    /// There is nothing to debug.
    #[error("{0} has no thread, so there is nothing to show")]
    NoThreads(String),
    /// No history, only a core.
    #[error(
        "thread {0} has no history, only its state at the crash; `backtrace` and `info registers` show it"
    )]
    NoHistory(Tid),
    /// No such thread.
    #[error("no thread {0}; `info threads` lists them")]
    NoThread(String),
    /// A position beyond its thread's history.
    #[error("{position} is not in the history of its thread, which goes from {start} to {end}")]
    NoPosition {
        /// The request.
        position: Position,
        /// The start.
        start: Position,
        /// The end.
        end: Position,
    },
    /// A name that no module has.
    #[error("no symbol \"{name}\" in {modules}; try `info functions {name}`")]
    NoSymbol {
        /// As given.
        name: String,
        /// "the 3 modules with symbols".
        modules: String,
    },
    /// A line without code.
    #[error("no module has code at {file}:{line}; `info functions` lists the functions")]
    NoLine {
        /// As given.
        file: String,
        /// As given.
        line: u32,
    },
    /// A location that was not understood.
    #[error("\"{0}\" is not a location; use FUNCTION, FILE:LINE, LINE or *ADDRESS")]
    BadLocation(String),
    /// An address that was not understood.
    #[error("\"{0}\" is not an address; use 0x… or SYMBOL+OFFSET")]
    BadAddress(String),
    /// A regular expression that is none.
    #[error("\"{pattern}\" is not a regular expression ({problem})")]
    BadRegex {
        /// As given.
        pattern: String,
        /// The problem.
        problem: String,
    },
    /// No such breakpoint.
    #[error("no breakpoint number {0}; `info breakpoints` lists them")]
    NoBreakpoint(u32),
    /// A value that is not known at this position.
    #[error("{name} = <unknown: {why}>")]
    UnknownValue {
        /// The register or expression.
        name: String,
        /// The reason why it is unknown.
        why: String,
    },
    /// Anything else that cannot be done here.
    #[error("{0}")]
    Cannot(String),
}

impl Error {
    /// Returns whether outside input was refused. The command line then exits with status 3.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Bundle(error) if error.is_refused())
    }
}

impl From<backtrail_values::Error> for Error {
    fn from(error: backtrail_values::Error) -> Self {
        Self::Cannot(error.0)
    }
}

impl From<Canceled> for Error {
    fn from(_: Canceled) -> Self {
        Self::Canceled
    }
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;
