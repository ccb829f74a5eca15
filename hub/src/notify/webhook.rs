//! Messages to URLs, with a signature and time limits.
//!
//! The header `X-Backtrail-Signature` has the time and an HMAC-SHA256 of the time and the body:
//!
//! ```text
//! X-Backtrail-Signature: t=1790000000,v1=2f1c…
//! ```
//!
//! A receiver computes `HMAC-SHA256(secret, "1790000000." + body)`, compares the digits in constant
//! time, and refuses old times. The function [`verify`] does the same.

use super::address::{AddressPolicy, Lookup, RefusedAddress};
use super::error::DeliveryError;
use super::guarded_agent::{guarded_agent, guarded_config};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write as _;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// The header of the signature.
pub const SIGNATURE_HEADER: &str = "X-Backtrail-Signature";
/// The header with the identifier of the delivery, which is the same in each attempt.
pub const DELIVERY_HEADER: &str = "X-Backtrail-Delivery";
/// The longest time of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest time of a request, from its name's resolution to the end of the answer.
const WHOLE: Duration = Duration::from_secs(15);
/// The most bytes of an answer that are read.
const MAX_ANSWER: u64 = 16 << 10;
/// The most bytes of an answer in an error.
const MAX_QUOTED: usize = 200;

/// A message to a URL.
#[derive(Clone, Copy, Debug)]
pub struct WebhookRequest<'a> {
    /// The URL.
    pub url: &'a str,
    /// The JSON.
    pub body: &'a str,
    /// The key of the signature. `None`: no signature.
    pub secret: Option<&'a str>,
    /// The identifier of the delivery.
    pub delivery: &'a str,
    /// The time, in seconds since 1970.
    pub time: u64,
}

/// Returns the value of the signature's header.
///
/// ```
/// use backtrail_hub::notify::webhook::{signature, verify};
///
/// let header = signature("key", 1_790_000_000, "{}");
/// assert!(verify("key", &header, "{}", 1_790_000_060, 300));
/// assert!(!verify("key", &header, "{ }", 1_790_000_060, 300));
/// ```
#[must_use]
pub fn signature(secret: &str, time: u64, body: &str) -> String {
    let mut header = format!("t={time},v1=");
    for byte in digest(secret, time, body) {
        let _ = write!(header, "{byte:02x}");
    }
    header
}

fn digest(secret: &str, time: u64, body: &str) -> Vec<u8> {
    // HMAC takes keys of every length, so that the empty list is never returned.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.as_bytes()) else {
        return Vec::new();
    };
    mac.update(time.to_string().as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Returns whether a signature is that of a body, and at most `tolerance` seconds from `now`.
#[must_use]
pub fn verify(secret: &str, header: &str, body: &str, now: u64, tolerance: u64) -> bool {
    let field = |name: &str| header.split(',').find_map(|part| part.trim().strip_prefix(name));
    let Some(time) = field("t=").and_then(|time| time.parse::<u64>().ok()) else {
        return false;
    };
    if now.abs_diff(time) > tolerance {
        return false;
    }
    let expected = signature(secret, time, body);
    let digits = expected.rsplit('=').next().unwrap_or_default();
    field("v1=").is_some_and(|found| found.as_bytes().ct_eq(digits.as_bytes()).into())
}

/// Sends a message. The function blocks for at most 15 seconds.
///
/// # Errors
/// Fails if the address is refused, or the receiver cannot be reached or reports no success.
/// Redirects are not followed.
pub fn post(
    policy: &AddressPolicy,
    lookup: &Lookup,
    request: &WebhookRequest<'_>,
) -> Result<(), DeliveryError> {
    let uri = policy
        .check_url(request.url)
        .map_err(|refused| DeliveryError::permanent(refused.to_string()))?;
    let host = uri.host().unwrap_or_default().to_owned();
    let config = guarded_config()
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(WHOLE))
        .max_response_header_size(MAX_ANSWER as usize)
        .max_idle_connections(0);
    let agent = guarded_agent(config, policy, lookup.clone());
    let mut post = agent
        .post(uri)
        .header("Content-Type", "application/json")
        .header(DELIVERY_HEADER, request.delivery);
    if let Some(secret) = request.secret {
        post = post.header(SIGNATURE_HEADER, signature(secret, request.time, request.body));
    }
    match post.send(request.body) {
        Ok(response) => answer(&host, response),
        Err(error) => Err(failure(&host, &error)),
    }
}

/// Returns the reason for which a request failed. Secrets in the path of the URL are not shown.
fn failure(host: &str, error: &ureq::Error) -> DeliveryError {
    if let ureq::Error::Io(error) = error
        && let Some(refused) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<RefusedAddress>())
    {
        return DeliveryError::permanent(refused.to_string());
    }
    DeliveryError::temporary(format!("{host} cannot be reached: {error}"))
}

/// Returns whether an answer is a success.
fn answer(host: &str, mut response: ureq::http::Response<ureq::Body>) -> Result<(), DeliveryError> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let retry_after = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
    let quoted: String = String::from_utf8_lossy(&body.unwrap_or_default())
        .chars()
        .take(MAX_QUOTED)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    let mut message = format!("{host} answered {status}");
    if !quoted.trim().is_empty() {
        let _ = write!(message, ": {}", quoted.trim());
    }
    // A receiver that is being deployed may answer 404 for a while.
    let is_permanent = status.is_redirection()
        || (status.is_client_error() && !matches!(status.as_u16(), 404 | 408 | 425 | 429));
    Err(match is_permanent {
        true => DeliveryError::permanent(message),
        false => DeliveryError::Temporary { message, retry_after },
    })
}

#[cfg(test)]
mod tests;
