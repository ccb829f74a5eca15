//! The client of a hub: sends reports, heartbeats and files, and downloads bundles.
//!
//! All calls block, and have time limits. An [`Error`] says whether a later try can succeed. A
//! redirect is never followed, so that the token reaches no other server.

mod address;
mod answer;
mod download;
mod error;
mod link;
mod origin;
mod profile_order;
mod token;
mod upload;

pub use address::HubAddress;
pub use download::Download;
pub use error::Error;
pub use link::CrashLink;
pub use origin::ProfileOrigin;
pub use profile_order::ProfileOrder;
pub use token::{InvalidToken, Token};
pub use upload::{MAX_PIECE, Upload, UploadEvent, UploadKind};

use crate::{CrashReport, Heartbeat, Receipt};
use answer::{Answer, read_json};
use serde::Deserialize;
use std::time::Duration;
use ureq::http::{Method, Request, StatusCode};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, SendBody};

/// The most reports of one request.
const MAX_REPORTS: usize = 100;
/// The time limit of a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// The time limit of an answer, and of each read and write.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A client of one hub.
#[derive(Clone, Debug)]
pub struct HubClient {
    address: HubAddress,
    token: Option<Token>,
    agent: Agent,
}

/// The owner of a token.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Identity {
    /// The token's name.
    pub name: String,
    /// The token's scopes: `ingest`, `read`, `admin`.
    pub scopes: Vec<String>,
}

impl HubClient {
    /// Creates a client. Nothing is sent yet.
    #[must_use]
    pub fn new(address: HubAddress, token: Option<Token>) -> Self {
        Self::with_limits(address, token, CONNECT_LIMIT, ANSWER_LIMIT)
    }

    /// Creates a client with these time limits of a connection, and of an answer.
    #[must_use]
    pub fn with_limits(
        address: HubAddress,
        token: Option<Token>,
        connect: Duration,
        answer: Duration,
    ) -> Self {
        // A company's own authorities are among the system's.
        let trusted = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .build();
        let agent = Agent::config_builder()
            .tls_config(trusted)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_recv_response(Some(answer))
            .timeout_per_read(Some(answer))
            .timeout_per_write(Some(answer))
            .user_agent(concat!("backtrail/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Self {
            address,
            token,
            agent,
        }
    }

    /// Returns the hub's address.
    #[must_use]
    pub fn address(&self) -> &HubAddress {
        &self.address
    }

    /// Sends reports, and returns one receipt each, in their order. A report that is sent again
    /// counts once.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached, refuses a report, or answers with something else. Then
    /// some of the reports may have been counted.
    pub fn send(&self, reports: &[CrashReport]) -> Result<Vec<Receipt>, Error> {
        let mut receipts = Vec::with_capacity(reports.len());
        for part in reports.chunks(MAX_REPORTS) {
            let body = serde_json::to_vec(part).map_err(|error| self.unexpected(&error.to_string()))?;
            let answer = self.post_json("/api/v1/reports", &body)?;
            let part_receipts: Vec<Receipt> = read_json(answer, &self.address)?;
            let are_for_these = part_receipts.len() == part.len()
                && (part_receipts.iter().zip(part)).all(|(receipt, report)| receipt.id == report.id);
            if !are_for_these {
                return Err(self.unexpected("the receipts are not for the reports that were sent"));
            }
            receipts.extend(part_receipts);
        }
        Ok(receipts)
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached, or refuses the heartbeat.
    pub fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), Error> {
        let body = serde_json::to_vec(heartbeat).map_err(|error| self.unexpected(&error.to_string()))?;
        self.post_json("/api/v1/heartbeat", &body).map(drop)
    }

    /// Sends a profile in any format that the hub reads. A profile that is sent again counts once.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached, or refuses the profile.
    pub fn send_profile(&self, origin: &ProfileOrigin, profile: &[u8]) -> Result<(), Error> {
        let url = self.address.join(&format!("/api/v1/profiles?{}", origin.query()));
        let length = profile.len().to_string();
        let headers = [
            ("content-type", "application/octet-stream"),
            ("content-length", &length),
        ];
        let mut body = profile;
        let answer = self.request(Method::POST, &url, &headers, SendBody::from_reader(&mut body))?;
        answer.successful(&self.address).map(drop)
    }

    /// Returns the next request for a profile of a host. Waits up to 20 seconds for one.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached, or does not know requests.
    pub fn next_profile_request(&self, host: &str) -> Result<Option<ProfileOrder>, Error> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("host", host);
        let path = format!("/api/v1/profile-requests/next?{}", query.finish());
        let answer = self.request(
            Method::GET,
            &self.address.join(&path),
            &[("prefer", "wait=20")],
            SendBody::none(),
        )?;
        let answer = answer.successful(&self.address)?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(None),
            _ => read_json(answer, &self.address).map(Some),
        }
    }

    /// Reports the end of a request. `problem` is the reason for which there is no profile.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached, or does not know the request.
    pub fn end_profile_request(&self, id: &str, host: &str, problem: Option<&str>) -> Result<(), Error> {
        let body = serde_json::json!({ "host": host, "problem": problem }).to_string();
        let path = format!("/api/v1/profile-requests/{id}/end");
        self.post_json(&path, body.as_bytes()).map(drop)
    }

    /// Returns the name and the scopes of the token.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached, or does not know the token.
    pub fn whoami(&self) -> Result<Identity, Error> {
        let url = self.address.join("/api/v1/whoami");
        let answer = self.request(Method::GET, &url, &[], SendBody::none())?;
        read_json(answer.successful(&self.address)?, &self.address)
    }

    fn post_json(&self, path: &str, body: &[u8]) -> Result<Answer, Error> {
        let url = self.address.join(path);
        let length = body.len().to_string();
        let headers = [("content-type", "application/json"), ("content-length", &length)];
        let mut body = body;
        let answer = self.request(Method::POST, &url, &headers, SendBody::from_reader(&mut body))?;
        answer.successful(&self.address)
    }

    /// Sends a request, and returns the answer with any status.
    fn request(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: SendBody<'_>,
    ) -> Result<Answer, Error> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.reveal()));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(body)
            .map_err(|error| self.unexpected(&error.to_string()))?;
        let answer = self.agent.run(request).map_err(|error| Error::Connection {
            hub: self.address.to_string(),
            problem: match error {
                ureq::Error::Io(error) => error.to_string(),
                error => error.to_string(),
            },
        })?;
        Ok(Answer(answer))
    }

    fn unexpected(&self, problem: &str) -> Error {
        Error::Unexpected {
            hub: self.address.to_string(),
            problem: problem.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
