//! The reason for which a message was not delivered.

use std::time::Duration;

/// The reason for which a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// Another attempt may succeed.
    #[error("{message}")]
    Temporary {
        /// One sentence.
        message: String,
        /// The time that the receiver asks to wait.
        retry_after: Option<Duration>,
    },
    /// Another attempt would fail as well.
    #[error("{message}")]
    Permanent {
        /// One sentence.
        message: String,
    },
}

impl DeliveryError {
    /// Builds an error after which another attempt may succeed.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self::Temporary {
            message: message.into(),
            retry_after: None,
        }
    }

    /// Builds an error after which another attempt would fail as well.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::Permanent {
            message: message.into(),
        }
    }

    /// Returns whether another attempt may succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Temporary { .. })
    }
}
