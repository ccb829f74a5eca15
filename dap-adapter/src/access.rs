//! The files and servers that a session may access.

use crate::origin;
use std::fmt;
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

/// The token for a hub. It is sent to the origin of this hub alone, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct HubToken {
    origin: Origin,
    token: String,
}

impl HubToken {
    /// Returns the token for a hub, or `None` if the text cannot be a token.
    #[must_use]
    pub fn new(origin: Origin, token: &str) -> Option<Self> {
        let token = token.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self {
            origin,
            token: token.to_owned(),
        })
    }
}

impl fmt::Debug for HubToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("HubToken").field(&self.origin).finish()
    }
}

/// The files and servers that a session may access.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Traces are fetched from these alone; `None`: from the server that the client names.
    pub origins: Option<Vec<Origin>>,
    /// The most that is fetched, in bytes.
    pub download_limit: Option<u64>,
    /// The token for the user's hub.
    pub hub_token: Option<HubToken>,
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

    /// Returns the token for an origin.
    #[must_use]
    pub(crate) fn token_for(&self, origin: &str) -> Option<&str> {
        let known = self.hub_token.as_ref().filter(|known| known.origin.0 == origin);
        known.map(|known| known.token.as_str())
    }

    /// Returns whether traces may be fetched from the origin of an address.
    #[must_use]
    pub(crate) fn allows(&self, origin: &str) -> bool {
        let allowed = self.origins.as_ref();
        allowed.is_none_or(|allowed| allowed.iter().any(|allowed| allowed.0 == origin))
    }
}
