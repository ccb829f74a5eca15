//! The answer to a request: status, headers, and a body of bounded size.

use super::{Error, HubAddress};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::time::Duration;
use ureq::Body;
use ureq::http::{Response, StatusCode};

/// The longest JSON body that is read.
const MAX_BODY: u64 = 4 << 20;
/// The longest message of an error that is read, and the characters that are shown.
const MAX_MESSAGE: u64 = 4096;
const SHOWN_MESSAGE: usize = 200;
/// The longest time that a hub may defer requests.
const MAX_RETRY_AFTER: u64 = 3600;

/// The answer to a request.
pub(super) struct Answer(pub Response<Body>);

/// The body of an error.
#[derive(Deserialize)]
struct ErrorBody {
    error: String,
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Returns a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name)?.to_str().ok()
    }

    /// Returns a header that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.trim().parse().ok()
    }

    /// Returns the answer if its status is 2xx, else the error.
    pub fn successful(self, hub: &HubAddress) -> Result<Self, Error> {
        match self.status().is_success() {
            true => Ok(self),
            false => Err(self.into_error(hub)),
        }
    }

    /// Returns the error of a status that is not 2xx.
    pub fn into_error(self, hub: &HubAddress) -> Error {
        let hub = hub.to_string();
        let code = self.status();
        let seconds = self
            .number("retry-after")
            .map(|seconds| seconds.min(MAX_RETRY_AFTER));
        let status = match self.message() {
            Some(message) => format!("{code} ({message})"),
            None => code.to_string(),
        };
        match code.as_u16() {
            408 | 425 | 429 | 500.. => Error::Unavailable {
                hub,
                status,
                retry_after: seconds.map(Duration::from_secs),
            },
            401 | 403 => Error::Unauthorized { hub, status },
            code => Error::Refused { hub, code, status },
        }
    }

    /// Returns the hub's message in one line of printable characters.
    fn message(self) -> Option<String> {
        let mut body = Vec::new();
        let mut reader = self.0.into_body().into_reader().take(MAX_MESSAGE);
        reader.read_to_end(&mut body).ok()?;
        let message = serde_json::from_slice::<ErrorBody>(&body).ok()?.error;
        let is_shown = |character: &char| !character.is_control();
        let message: String = message.chars().filter(is_shown).take(SHOWN_MESSAGE).collect();
        (!message.trim().is_empty()).then_some(message)
    }
}

/// Reads the JSON body of an answer.
pub(super) fn read_json<T: DeserializeOwned>(answer: Answer, hub: &HubAddress) -> Result<T, Error> {
    let mut body = Vec::new();
    let mut reader = answer.0.into_body().into_reader().take(MAX_BODY + 1);
    reader.read_to_end(&mut body).map_err(|error| Error::Connection {
        hub: hub.to_string(),
        problem: error.to_string(),
    })?;
    let unexpected = |problem: String| Error::Unexpected {
        hub: hub.to_string(),
        problem,
    };
    if body.len() as u64 > MAX_BODY {
        return Err(unexpected(format!("its answer has more than {MAX_BODY} bytes")));
    }
    serde_json::from_slice(&body).map_err(|error| unexpected(format!("its answer is malformed ({error})")))
}
