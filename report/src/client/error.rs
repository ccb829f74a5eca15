//! The errors of the client, each shown as one sentence.

use std::time::Duration;

/// The reason why the hub did not do what was requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not supported.
    #[error("cannot use the hub {address}: {problem}")]
    Address {
        /// As given.
        address: String,
        /// The problem.
        problem: &'static str,
    },
    /// The text is no link to a crash.
    #[error("\"{0}\" is not a link to a crash, which is https://HUB/c/ID or https://HUB/c/ID#POSITION")]
    Link(String),
    /// The connection failed.
    #[error("cannot reach the hub {hub}: {problem}; try again later")]
    Connection {
        /// The hub.
        hub: String,
        /// The problem.
        problem: String,
    },
    /// The hub cannot answer now: status 408, 429 or 5xx.
    #[error("the hub {hub} cannot answer now: {status}; try again later")]
    Unavailable {
        /// The hub.
        hub: String,
        /// The status, with the hub's message.
        status: String,
        /// The pause that the hub requests.
        retry_after: Option<Duration>,
    },
    /// The token is unknown, or lacks a scope: status 401 or 403.
    #[error("the hub {hub} does not accept the token: {status}; `backtrail login {hub}` stores another one")]
    Unauthorized {
        /// The hub.
        hub: String,
        /// The status, with the hub's message.
        status: String,
    },
    /// The hub refused: another status 4xx, or a redirect.
    #[error("the hub {hub} refused: {status}")]
    Refused {
        /// The hub.
        hub: String,
        /// The status as a number.
        code: u16,
        /// The status, with the hub's message.
        status: String,
    },
    /// The answer is not that of a hub.
    #[error("{hub} does not answer as a hub does: {problem}; check its address")]
    Unexpected {
        /// The hub.
        hub: String,
        /// The problem.
        problem: String,
    },
    /// The downloaded file has another digest than the hub stated.
    #[error("the bundle from {hub} was damaged on its way: its SHA-256 is {found} instead of {stated}")]
    Digest {
        /// The hub.
        hub: String,
        /// The digest of the received file.
        found: String,
        /// The digest that the hub stated.
        stated: String,
    },
    /// The file is too large.
    #[error("the bundle has more than the limit of {limit} MiB")]
    TooLarge {
        /// In MiB.
        limit: u64,
    },
    /// A file on this machine failed.
    #[error("cannot {action} the file: {source}")]
    File {
        /// The attempted operation, as a verb.
        action: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The caller canceled the transfer.
    #[error("canceled")]
    Canceled,
}

impl Error {
    /// Returns whether the same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Connection { .. }
                | Self::Unavailable { .. }
                | Self::Unexpected { .. }
                | Self::Digest { .. }
        )
    }

    /// Returns whether the hub refused the token. Another token may be accepted.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Unauthorized { .. })
    }

    /// Returns the pause that the hub requests.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Builds a function for `map_err` on I/O of a local file.
    pub(super) fn file(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { action, source }
    }
}
