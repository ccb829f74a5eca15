//! Requests to upstream debuginfod servers, with bounds on time and size.

use crate::config::Symbols;
use crate::error::{Error, Result};
use crate::notify::address::{AddressPolicy, system_lookup};
use crate::notify::guarded_agent::{guarded_agent, guarded_config};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The longest time of a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The longest time from the request to the head of the answer.
const FIRST_BYTE: Duration = Duration::from_secs(5);
/// The longest time of a whole request.
const WHOLE: Duration = Duration::from_secs(600);

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The file is in the given place. Its name there, if the server states it.
    Found(Option<String>),
    /// The server has no such file.
    Absent,
}

/// A failed request, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The server cannot be reached, or fails.
    #[error("{0}")]
    Server(String),
    /// The file is too large.
    #[error("the file at the upstream server has more than {0} bytes")]
    TooLarge(u64),
    /// The file cannot be written here.
    #[error("cannot write the file of the upstream server: {0}")]
    File(std::io::Error),
}

/// The configured upstream servers.
#[derive(Debug)]
pub struct Upstream {
    servers: Vec<String>,
    policy: AddressPolicy,
    limit: u64,
    /// Files that are being fetched: one request for each at a time.
    locks: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Upstream {
    /// Checks the configured addresses.
    ///
    /// # Errors
    /// Fails if an address or an exception is malformed.
    pub fn new(config: &Symbols) -> Result<Self> {
        let policy = AddressPolicy::new(&config.allowed_addresses)
            .map_err(|error| Error::Configuration(format!("symbols.allowed_addresses: {error}")))?;
        let mut servers = Vec::new();
        for server in &config.upstream {
            policy
                .check_url(server)
                .map_err(|error| Error::Configuration(format!("symbols.upstream: {server}: {error}")))?;
            servers.push(server.trim_end_matches('/').to_owned());
        }
        Ok(Self {
            servers,
            policy,
            limit: config.upstream_bytes,
            locks: Mutex::default(),
        })
    }

    /// Returns the servers, in the order in which they are asked.
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Returns the lock of a file, so that it is fetched once at a time.
    #[must_use]
    pub fn lock(&self, build_id: &str, kind: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        let name = format!("{build_id}/{kind}");
        if let Some(lock) = locks.get(&name).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(name, Arc::downgrade(&lock));
        lock
    }

    /// Fetches a file from one server. The function blocks for at most ten minutes.
    ///
    /// # Errors
    /// Fails if the server's address is refused, the server fails, or the file is too large.
    pub fn fetch(
        &self,
        server: &str,
        build_id: &str,
        kind: &str,
        target: &Path,
    ) -> std::result::Result<Answer, UpstreamError> {
        let failed = |error: ureq::Error| UpstreamError::Server(format!("{server}: {error}"));
        let config = guarded_config()
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(FIRST_BYTE))
            .timeout_global(Some(WHOLE));
        let agent = guarded_agent(config, &self.policy, system_lookup());
        let address = format!("{server}/buildid/{build_id}/{}", percent_encoded(kind));
        let mut response = agent.get(&address).call().map_err(failed)?;
        match response.status().as_u16() {
            200 => {}
            // Servers answer 400 to paths that they do not like.
            400 | 403 | 404 | 410 => return Ok(Answer::Absent),
            status => return Err(UpstreamError::Server(format!("{server} answered {status}"))),
        }
        let name = response
            .headers()
            .get("x-debuginfod-file")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let mut body = response.body_mut().as_reader();
        let mut file = std::fs::File::create_new(target).map_err(UpstreamError::File)?;
        let mut buffer = vec![0; 256 << 10];
        let mut size = 0_u64;
        loop {
            let read = body
                .read(&mut buffer)
                .map_err(|error| UpstreamError::Server(format!("{server}: {error}")))?;
            if read == 0 {
                return Ok(Answer::Found(name));
            }
            size = size.saturating_add(read as u64);
            if size > self.limit {
                return Err(UpstreamError::TooLarge(self.limit));
            }
            file.write_all(buffer.get(..read).unwrap_or_default())
                .map_err(UpstreamError::File)?;
        }
    }
}

/// Returns a path with all but slashes and unreserved characters encoded (RFC 3986).
fn percent_encoded(path: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            other => {
                let _ = write!(text, "%{other:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests;
