//! What can go wrong with a bundle, each told in one sentence.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a bundle could not be read, written or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: "read", "create".
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Input from outside is not what it claims to be.
    #[error("{place}: {problem}")]
    Malformed {
        /// File, and where in it.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// Valid input of a kind that is not read.
    #[error("{place}: {problem}")]
    Unsupported {
        /// File, and where in it.
        place: String,
        /// What it is.
        problem: String,
    },
    /// The place to write to is taken.
    #[error("{} exists and is {what}; choose another place{hint}", path.display())]
    TargetExists {
        /// The place.
        path: PathBuf,
        /// What stands there.
        what: &'static str,
        /// What else can be done.
        hint: &'static str,
    },
    /// It was to end before it was done ([`crate::Stop`]).
    #[error("canceled")]
    Canceled,
    /// The arguments contradict each other or miss something.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Whether outside input was malformed.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed { .. })
    }

    /// Whether outside input was refused, as malformed or as of a kind that is not read: the command line exits with 3 for it.
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

    /// For `map_err` on I/O with `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// For `map_err` on perf's parser, of bytes that stand in `place`.
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
