//! The errors of the collector.

use std::io;
use std::path::{Path, PathBuf};

/// The result type of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the collector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration file is invalid.
    #[error("{}: {problem}", path.display())]
    Config {
        /// The path of the file.
        path: PathBuf,
        /// The problem and its position.
        problem: String,
    },
    /// Another collector is running.
    #[error("another collector is running (process {pid}, {}); stop it first, or set another runtime directory", runtime.display())]
    Running {
        /// Its process id, from its lock file.
        pid: String,
        /// Its runtime directory.
        runtime: PathBuf,
    },
    /// No collector is running.
    #[error("no collector answers at {}; start it with `backtrail collect`", .0.display())]
    NotRunning(PathBuf),
    /// The spool has no such bundle.
    #[error("there is no crash {id:?} in {}; `backtrail crashes list` shows all", spool.display())]
    NoSuchCrash {
        /// The requested name.
        id: String,
        /// The directory of the spool.
        spool: PathBuf,
    },
    /// Several bundles match the name.
    #[error("{id:?} matches {count} crashes in {}; give a longer prefix", spool.display())]
    Ambiguous {
        /// The requested name.
        id: String,
        /// The number of matches.
        count: usize,
        /// The directory of the spool.
        spool: PathBuf,
    },
    /// An operation on a file failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The operation, as a verb.
        action: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A system operation failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The operation, as a verb.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// An operation is impossible. The message states the reason and the remedy.
    #[error("{0}")]
    Unable(String),
    /// The processor or the kernel does not support Intel PT.
    #[error("Intel PT is not available: {why}; record services in software instead (`backtrail record`)")]
    NoPt {
        /// The reason.
        why: String,
    },
    /// A perf event was refused, or sysfs has invalid content.
    #[error(transparent)]
    Perf(#[from] backtrail_perf::Error),
    /// A bundle could not be written or read.
    #[error(transparent)]
    Bundle(#[from] backtrail_bundle::Error),
}

impl Error {
    /// Returns whether the error is invalid input.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Bundle(error) => error.is_refused(),
            Self::Config { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the error is a lack of permission.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::File { source, .. } | Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Returns a function for `map_err` on file operations.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// Returns a function for `map_err` on other operations.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            action,
            source: source.into(),
        }
    }
}
