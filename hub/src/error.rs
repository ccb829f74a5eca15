//! The hub's errors.

use std::path::{Path, PathBuf};

/// A result of the hub.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the hub, as one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("cannot bring the database up to date: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The object store failed.
    #[error("the object store failed at {key}: {reason}")]
    Object {
        /// The object's key.
        key: String,
        /// The reason, without the server's XML.
        reason: String,
    },
    /// The database names an object that does not exist.
    #[error("{row} names the object {key}, which is missing; restore it from a backup")]
    MissingObject {
        /// The row.
        row: String,
        /// The object's key.
        key: String,
    },
    /// The profile store failed.
    #[error(transparent)]
    Segment(#[from] backtrail_store::Error),
    /// A profile cannot be read.
    #[error(transparent)]
    Profile(#[from] backtrail_profile::Error),
    /// Two builds cannot be compared.
    #[error(transparent)]
    Comparison(#[from] backtrail_store::regression::ComparisonError),
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// As a verb: "read".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Another system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// As a verb: "start the child process".
        action: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// The configuration is wrong.
    #[error("{0}")]
    Configuration(String),
    /// A request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// A request has no valid token.
    #[error("a token is needed: send the header `Authorization: Bearer TOKEN`, or sign in")]
    NoToken,
    /// A request has a token that the hub does not accept.
    #[error(
        "this token is unknown, has expired or was revoked; ask an administrator of this hub for a new one"
    )]
    UnknownToken,
    /// A token's scopes do not suffice.
    #[error("this token lacks the scope `{0}`")]
    Scope(&'static str),
    /// A request came from another site's page.
    #[error("the request did not come from a page of this hub; reload the page and try again")]
    ForeignRequest,
    /// The named thing does not exist.
    #[error("there is no {0}")]
    Absent(String),
    /// The request conflicts with the present state.
    #[error("{0}")]
    Conflict(String),
    /// Something exceeds its limit.
    #[error("{0}")]
    TooLarge(String),
    /// The sender exceeds its rate.
    #[error("too many requests with this token; try again in {seconds} s")]
    TooMany {
        /// The time to wait.
        seconds: u64,
    },
    /// The hub ends.
    #[error("the hub is ending; try again")]
    Ending,
}

impl Error {
    /// Returns a closure that wraps an error of a file operation.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// Returns a closure that wraps an error of another system call.
    pub fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
