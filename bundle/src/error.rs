//! The errors of this crate, each shown as one sentence.

use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a bundle could not be read, written or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted operation, as a verb: "read", "create".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Untrusted input is malformed.
    #[error("{place}: {problem}")]
    Malformed {
        /// The file, and the position in it.
        place: String,
        /// The fault.
        problem: String,
    },
    /// The input is valid, but of an unsupported kind.
    #[error("{place}: {problem}")]
    Unsupported {
        /// The file, and the position in it.
        place: String,
        /// The unsupported feature.
        problem: String,
    },
    /// The output path exists.
    #[error("{} exists and is {what}; choose another path{hint}", path.display())]
    TargetExists {
        /// The path.
        path: PathBuf,
        /// The kind of the existing file, as a noun: "a directory".
        what: &'static str,
        /// A further suggestion for the user.
        hint: &'static str,
    },
    /// The operation was canceled ([`crate::CancelToken`]).
    #[error("canceled")]
    Canceled,
    /// The arguments contradict each other, or one is missing.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Returns whether untrusted input was malformed.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed { .. })
    }

    /// Returns whether untrusted input was refused, as malformed or as unsupported. The command
    /// line then exits with status 3.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Malformed { .. } | Self::Unsupported { .. })
    }

    pub(crate) fn malformed(place: impl ToString, problem: impl ToString) -> Self {
        Self::Malformed {
            place: place.to_string(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn unsupported(place: impl ToString, problem: impl ToString) -> Self {
        Self::Unsupported {
            place: place.to_string(),
            problem: problem.to_string(),
        }
    }

    /// Returns a function for `map_err` on I/O with `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Returns a function for `map_err` on perf's parser. `place` names the file that holds the
    /// bytes.
    pub(crate) fn perf(place: &Path) -> impl FnOnce(backtrail_perf::Error) -> Self {
        let place = place.display().to_string();
        move |error| {
            if error.is_malformed() {
                Self::Malformed {
                    place,
                    problem: error.to_string(),
                }
            } else {
                Self::Unsupported {
                    place,
                    problem: error.to_string(),
                }
            }
        }
    }
}
