//! The errors of the store.

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why the store could not write, read or change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object store failed.
    #[error("the object store failed at {key}: {reason}")]
    Object {
        /// The object's key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// The catalog names an object that does not exist.
    #[error("the catalog names the file {key}, which is missing; restore it, or remove its segment")]
    Missing {
        /// The object's key.
        key: String,
    },
    /// A file is damaged, or not of this store.
    #[error("{key}: {problem}; restore the file, or remove its segment")]
    Damaged {
        /// The object's key.
        key: String,
        /// The problem.
        problem: String,
    },
    /// The catalog failed.
    #[error("the catalog of the profile store failed: {0}")]
    Catalog(String),
    /// A segment to be replaced is not in the catalog any more.
    #[error("segment {segment} was replaced by another job; nothing was changed")]
    Conflict {
        /// The segment.
        segment: String,
    },
    /// A profile's table is full.
    #[error(transparent)]
    Profile(#[from] backtrail_profile::Error),
    /// A profile or a query cannot be accepted.
    #[error("{0}")]
    Invalid(String),
    /// The upload of a segment took too long for garbage collection.
    #[error(
        "writing segment {segment} took {seconds} s, longer than files without a row are kept; write it again"
    )]
    TooLate {
        /// The segment.
        segment: String,
        /// The time since the first file was written.
        seconds: u64,
    },
    /// A job needs more memory than its limit.
    #[error("{job} needs {needed} bytes of memory, more than the limit of {limit}; {advice}")]
    Memory {
        /// The job, as `the query`.
        job: &'static str,
        /// The bytes that it needs.
        needed: u64,
        /// The limit.
        limit: u64,
        /// The next step of the user.
        advice: &'static str,
    },
    /// The query was canceled.
    #[error("the query was canceled")]
    Canceled,
    /// The system has no random numbers, or a thread could not be used.
    #[error("cannot {action}: {reason}")]
    System {
        /// As a verb: `read random numbers`.
        action: &'static str,
        /// The reason.
        reason: String,
    },
}

impl Error {
    /// Returns the error of an operation on an object.
    pub(crate) fn object(key: &str, error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::Missing { key: key.into() },
            other => Self::Object {
                key: key.into(),
                reason: other.to_string(),
            },
        }
    }

    /// Returns the error of a file that cannot be read.
    pub(crate) fn damaged(key: &str, problem: impl ToString) -> Self {
        Self::Damaged {
            key: key.into(),
            problem: problem.to_string(),
        }
    }
}
