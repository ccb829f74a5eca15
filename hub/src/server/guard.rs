//! Requests that another site's page caused, and names that lead here by accident.

use crate::error::{Error, Result};
use crate::objects::hexadecimal;
use axum::http::{HeaderMap, Method, header};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// Checks that a request of a session that changes something comes from a page of the hub.
///
/// Browsers say so in `Sec-Fetch-Site` (Fetch Metadata), and older ones in `Origin`.
///
/// # Errors
/// Fails if neither header says so.
pub fn require_own_page(method: &Method, headers: &HeaderMap) -> Result<()> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &axum::http::HeaderValue| value.to_str().ok())
    };
    let is_own = match (text("sec-fetch-site"), text(header::ORIGIN.as_str())) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            let host = text(header::HOST.as_str()).unwrap_or_default();
            origin
                .split_once("://")
                .is_some_and(|(_, rest)| rest == host && !host.is_empty())
        }
        (None, None) => false,
    };
    if is_own {
        Ok(())
    } else {
        Err(Error::ForeignRequest)
    }
}

/// Returns the key that forms of a session carry.
#[must_use]
pub fn form_key(session: &str) -> String {
    match Hmac::<Sha256>::new_from_slice(session.as_bytes()) {
        Ok(mut mac) => {
            mac.update(b"form");
            hexadecimal(&mac.finalize().into_bytes())
        }
        // HMAC takes keys of every length.
        Err(_) => String::new(),
    }
}

/// Checks the key of a form.
///
/// # Errors
/// Fails if it is not the session's.
pub fn check_form_key(session: &str, key: &str) -> Result<()> {
    let wanted = form_key(session);
    if !wanted.is_empty() && bool::from(wanted.as_bytes().ct_eq(key.as_bytes())) {
        return Ok(());
    }
    Err(Error::ForeignRequest)
}

/// Returns whether a request's `Host` header names this hub. A page of another site can make its
/// own name lead to this machine's address, and then read what it gets.
#[must_use]
pub fn is_own_host(host: &str, public_url: &str) -> bool {
    let name = without_port(host);
    let public = public_url.split_once("://").map_or(public_url, |(_, rest)| rest);
    let public = public.split('/').next().unwrap_or_default();
    if name.eq_ignore_ascii_case(without_port(public)) || name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    // An address cannot be made to lead elsewhere.
    name.trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
        .is_ok()
}

fn without_port(host: &str) -> &str {
    if host.ends_with(']') {
        return host;
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|&(name, value)| {
            (
                axum::http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        pairs.collect()
    }

    #[test]
    fn foreign_pages_change_nothing() {
        let post = |pairs: &[_]| require_own_page(&Method::POST, &headers(pairs)).is_ok();
        assert!(post(&[("sec-fetch-site", "same-origin")]));
        assert!(!post(&[("sec-fetch-site", "cross-site")]));
        assert!(!post(&[("sec-fetch-site", "same-site")]));
        assert!(!post(&[]));
        assert!(post(&[
            ("origin", "https://hub.example"),
            ("host", "hub.example")
        ]));
        assert!(!post(&[
            ("origin", "https://evil.example"),
            ("host", "hub.example")
        ]));
        assert!(require_own_page(&Method::GET, &headers(&[])).is_ok());
    }

    #[test]
    fn form_keys_belong_to_one_session() {
        let key = form_key("one");
        assert!(check_form_key("one", &key).is_ok());
        assert!(check_form_key("two", &key).is_err());
        assert!(check_form_key("one", "").is_err());
    }

    #[test]
    fn names_of_other_sites_are_refused() {
        let own = |host| is_own_host(host, "https://crash.example.com:8443/");
        assert!(own("crash.example.com:8443"));
        assert!(own("CRASH.example.com"));
        assert!(own("localhost:7777"));
        assert!(own("127.0.0.1:7777"));
        assert!(own("[::1]:7777"));
        assert!(!own("evil.example"));
        assert!(!own("crash.example.com.evil.example"));
        assert!(!own(""));
    }
}
