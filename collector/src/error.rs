//! What can go wrong in the collector.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the collector could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of configuration is wrong.
    #[error("{}: {problem}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        problem: String,
    },
    /// Another collector runs.
    #[error("a collector runs already (process {pid}, {}); stop it first, or give this one a runtime directory of its own", runtime.display())]
    Running {
        /// Its process, as its lock file says.
        pid: String,
        /// Its runtime directory.
        runtime: PathBuf,
    },
    /// No collector runs.
    #[error("no collector answers at {}; start it with `backtrail collect`", .0.display())]
    NotRunning(PathBuf),
    /// The spool has no such bundle.
    #[error("there is no crash {id:?} in {}; `backtrail crashes list` names them", spool.display())]
    NoSuchCrash {
        /// What was asked for.
        id: String,
        /// Where.
        spool: PathBuf,
    },
    /// Several bundles answer to the name.
    #[error("{id:?} may be any of {count} crashes in {}; write more of it", spool.display())]
    Ambiguous {
        /// What was asked for.
        id: String,
        /// How many begin so.
        count: usize,
        /// Where.
        spool: PathBuf,
    },
    /// A file could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// Something of the machine could not be used.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// The answer.
        source: io::Error,
    },
    /// Something cannot be done here; the sentence says why and what would help.
    #[error("{0}")]
    Unable(String),
    /// The processor, or this kernel, has no Intel PT.
    #[error("there is no Intel PT here: {why}; record services in software instead (`backtrail record`)")]
    NoPt {
        /// Why not.
        why: String,
    },
    /// An event was refused, or sysfs holds what it cannot hold.
    #[error(transparent)]
    Perf(#[from] backtrail_perf::Error),
    /// The bundle could not be written or read.
    #[error(transparent)]
    Bundle(#[from] backtrail_bundle::Error),
}

impl Error {
    /// Whether outside input was refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Bundle(error) => error.is_refused(),
            Self::Config { .. } => true,
            _ => false,
        }
    }

    /// Whether the system does not allow it to this user.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::File { source, .. } | Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// For `map_err` on I/O with a file.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// For `map_err` on other I/O.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            action,
            source: source.into(),
        }
    }
}
