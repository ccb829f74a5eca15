//! The files and servers that a session may access.

use crate::origin;
use std::str::FromStr;

/// Scheme, host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        origin::origin_of(text)
            .map(Self)
            .ok_or_else(|| "use https://HOST or https://HOST:PORT".to_owned())
    }
}

/// The files and servers that a session may access.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Traces are fetched from these alone; `None`: from the server that the client names.
    pub origins: Option<Vec<Origin>>,
    /// The most that is fetched, in bytes.
    pub download_limit: Option<u64>,
    /// Text of source files is read below the folders alone that the user named.
    pub(crate) is_bounded: bool,
}

impl Access {
    /// For clients that connect, and were not started together with this program: nothing that was
    /// not allowed.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub(crate) fn for_clients_that_connect(self) -> Self {
        Self {
            origins: Some(self.origins.unwrap_or_default()),
            is_bounded: true,
            ..self
        }
    }

    /// Returns whether traces may be fetched from the origin of an address.
    #[must_use]
    pub(crate) fn allows(&self, origin: &str) -> bool {
        let allowed = self.origins.as_ref();
        allowed.is_none_or(|allowed| allowed.iter().any(|allowed| allowed.0 == origin))
    }
}
