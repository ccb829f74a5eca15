//! Requests to the hubs of other sites, with bounds on time and size.

use super::answer::{SiteProblem, SiteState};
use crate::config;
use crate::database::sites::SiteRow;
use crate::error::{Error, Result};
use crate::notify::address::{AddressPolicy, RefusedAddress, system_lookup};
use crate::notify::guarded_agent::{guarded_agent, guarded_config};
use std::io::Read;
use std::time::Duration;

/// The header of a request of one hub to another. A hub that gets it asks no further ones.
pub const SITE_HEADER: &str = "backtrail-site";
/// The header of the answer, which has the identity of the hub.
pub const HUB_HEADER: &str = "backtrail-hub";
/// The longest time of a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// The longest time that a configuration may give a site in seconds.
const MAX_SECONDS: u64 = 120;
/// The largest answer in bytes.
const MAX_ANSWER: u64 = 32 << 20;
/// The most characters of an identity.
const MAX_IDENTITY: usize = 128;
/// The most bytes of an answer's reason.
const MAX_QUOTED: usize = 200;

/// The answer of a site. `None`: it has no samples of the selection.
pub type AskedSite = std::result::Result<Option<Vec<u8>>, SiteProblem>;

/// The answer with the identity of the hub that gave it. An earlier version states none.
pub(super) struct Identified {
    pub(super) answer: AskedSite,
    pub(super) hub: Option<String>,
}

/// The client of other hubs.
#[derive(Clone, Debug)]
pub struct SiteClient {
    policy: AddressPolicy,
    timeout: Duration,
}

impl SiteClient {
    /// Returns the client of a configuration.
    ///
    /// # Errors
    /// Fails if an allowed address is malformed, or the time is out of range.
    pub fn new(config: &config::Sites) -> Result<Self> {
        if !(1..=MAX_SECONDS).contains(&config.seconds) {
            return Err(Error::Configuration(format!(
                "sites.seconds is a number from 1 to {MAX_SECONDS}"
            )));
        }
        Ok(Self {
            policy: AddressPolicy::new(&config.allowed_addresses)
                .map_err(|error| Error::Configuration(format!("sites.allowed_addresses: {error}")))?,
            timeout: Duration::from_secs(config.seconds),
        })
    }

    /// Checks the address of a site.
    ///
    /// # Errors
    /// Fails if the address is malformed, not encrypted, or internal without an exception.
    pub fn check_url(&self, url: &str) -> Result<()> {
        let uri = self.policy.check_url(url).map_err(|error| {
            let error = error.to_string();
            Error::Invalid(error.replace("`allowed_addresses`", "`sites.allowed_addresses`"))
        })?;
        match uri.query().is_none() && !url.contains('#') {
            true => Ok(()),
            false => Err(Error::Invalid("the address of a site has no query".to_owned())),
        }
    }

    /// Asks a site, and returns its answer. `None`: it has no samples of the selection.
    ///
    /// # Errors
    /// Fails if the site is late, refuses, fails, or answers with too many bytes.
    pub(super) async fn get(&self, site: &SiteRow, path_and_query: &str) -> Identified {
        self.ask(site, path_and_query, None, self.timeout).await
    }

    /// Sends a JSON text to a site, and returns its answer.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(super) async fn post(
        &self,
        site: &SiteRow,
        path: &str,
        text: String,
        timeout: Duration,
    ) -> Identified {
        self.ask(site, path, Some(text), timeout).await
    }

    async fn ask(&self, site: &SiteRow, path: &str, text: Option<String>, timeout: Duration) -> Identified {
        let (answer, hub) = match self.answer(site, path, text, timeout).await {
            Ok((body, hub)) => (Ok(body), hub),
            Err(problem) => (Err(problem), None),
        };
        Identified { answer, hub }
    }

    async fn answer(
        &self,
        site: &SiteRow,
        path: &str,
        text: Option<String>,
        timeout: Duration,
    ) -> std::result::Result<IdentifiedBody, SiteProblem> {
        let Some(token) = site.token.clone() else {
            return Err(SiteProblem::failed("its token is missing; set it again"));
        };
        let (client, address) = (self.clone(), format!("{}{path}", site.url));
        let late = || SiteProblem {
            state: SiteState::Late,
            reason: format!("no answer in {} s", timeout.as_secs()),
        };
        let request =
            tokio::task::spawn_blocking(move || client.ask_blocking(&address, &token, text, timeout));
        // The system's resolver may take longer than the request.
        match tokio::time::timeout(timeout + CONNECT, request).await {
            Err(_) => Err(late()),
            Ok(Err(error)) => Err(SiteProblem::failed(format!("the request ended: {error}"))),
            Ok(Ok(Err(GetError::Late))) => Err(late()),
            Ok(Ok(Err(GetError::Failed(reason)))) => Err(SiteProblem::failed(reason)),
            Ok(Ok(Ok(answered))) => Ok(answered),
        }
    }

    fn ask_blocking(
        &self,
        address: &str,
        token: &str,
        text: Option<String>,
        timeout: Duration,
    ) -> std::result::Result<IdentifiedBody, GetError> {
        let uri = self
            .policy
            .check_url(address)
            .map_err(|error| GetError::Failed(error.to_string()))?;
        let config = guarded_config()
            .timeout_connect(Some(CONNECT.min(timeout)))
            .timeout_global(Some(timeout));
        let agent = guarded_agent(config, &self.policy, system_lookup());
        let authorization = format!("Bearer {token}");
        let sent = match text {
            None => agent
                .get(uri)
                .header("Authorization", authorization)
                .header(SITE_HEADER, "1")
                .call(),
            Some(text) => agent
                .post(uri)
                .header("Authorization", authorization)
                .header(SITE_HEADER, "1")
                .header("Content-Type", "application/json")
                .send(text),
        };
        let mut response = sent.map_err(|error| failure(&error))?;
        let status = response.status();
        let hub = response
            .headers()
            .get(HUB_HEADER)
            .and_then(|hub| hub.to_str().ok());
        let hub = hub.map(|hub| hub.chars().take(MAX_IDENTITY).collect());
        let mut body = Vec::new();
        let read = response
            .body_mut()
            .as_reader()
            .take(MAX_ANSWER + 1)
            .read_to_end(&mut body);
        if let Err(error) = read {
            return Err(match error.kind() {
                std::io::ErrorKind::TimedOut => GetError::Late,
                _ => GetError::Failed(format!("the answer ended early: {error}")),
            });
        }
        if body.len() as u64 > MAX_ANSWER {
            return Err(GetError::Failed(format!(
                "the answer has more than {} MiB; select a shorter time",
                MAX_ANSWER >> 20
            )));
        }
        match status.as_u16() {
            200 => Ok((Some(body), hub)),
            204 => Ok((None, hub)),
            status => Err(GetError::Failed(format!("it answered {status}{}", quoted(&body)))),
        }
    }
}

/// The body of an answer, and the identity of the hub.
type IdentifiedBody = (Option<Vec<u8>>, Option<String>);

enum GetError {
    Late,
    Failed(String),
}

fn failure(error: &ureq::Error) -> GetError {
    match error {
        ureq::Error::Timeout(_) => GetError::Late,
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => GetError::Late,
        ureq::Error::Io(error)
            if error
                .get_ref()
                .is_some_and(<dyn std::error::Error + Send + Sync>::is::<RefusedAddress>) =>
        {
            GetError::Failed(error.to_string())
        }
        error => GetError::Failed(format!("it cannot be reached: {error}")),
    }
}

/// Returns the reason in an answer, in printable characters.
fn quoted(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = value["error"].as_str().unwrap_or_default();
    let shown = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    let text: String = shown.take(MAX_QUOTED).collect();
    match text.is_empty() {
        true => String::new(),
        false => format!(": {text}"),
    }
}
