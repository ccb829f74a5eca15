//! The sender of a request: a token, a session of a page, or a proxy's user.

use super::guard;
use super::rate::Rates;
use crate::access::Scope;
use crate::config::Proxy;
use crate::database::Database;
use crate::error::{Error, Result};
use axum::http::{HeaderMap, Method, header};
use std::net::IpAddr;

/// The name of the cookie of a session.
pub const COOKIE: &str = "backtrail_session";

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name for the audit log.
    pub name: String,
    /// The token's identifier. `None`: a proxy named the person.
    pub token: Option<String>,
    /// The scopes.
    pub scopes: Vec<Scope>,
    /// The secret of the session, from which forms get their key. `None`: no session.
    pub session: Option<String>,
}

impl Caller {
    /// Returns whether the caller has a scope.
    #[must_use]
    pub fn allows(&self, scope: Scope) -> bool {
        scope.is_within(&self.scopes)
    }

    /// Checks a scope.
    ///
    /// # Errors
    /// Fails if the caller lacks it.
    pub fn require(&self, scope: Scope) -> Result<()> {
        if self.allows(scope) {
            return Ok(());
        }
        Err(Error::Scope(scope.name()))
    }
}

/// The parts of a request that authenticate it.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The method.
    pub method: &'a Method,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The address of the other end of the connection.
    pub peer: IpAddr,
}

/// Returns the sender of a request.
///
/// # Errors
/// Fails if there is no valid token, session or trusted proxy. Fails if a session's request comes
/// from a foreign page, or if the token's rate is exceeded.
pub async fn authenticate(
    database: &Database,
    proxy: Option<&Proxy>,
    rates: &Rates,
    credentials: &Credentials<'_>,
) -> Result<Caller> {
    let headers = credentials.headers;
    if let Some(secret) = bearer(headers) {
        let token = database.token(secret).await?.ok_or(Error::UnknownToken)?;
        rates.count(&token.id)?;
        return Ok(Caller {
            name: token.name,
            token: Some(token.id),
            scopes: token.scopes,
            session: None,
        });
    }
    if let Some(secret) = cookie(headers, COOKIE)
        && let Some(token) = database.token(secret).await?
    {
        guard::require_own_page(credentials.method, headers)?;
        rates.count(&token.id)?;
        return Ok(Caller {
            name: token.name,
            token: Some(token.id),
            scopes: token.scopes,
            session: Some(secret.to_owned()),
        });
    }
    if let Some(proxy) = proxy.filter(|proxy| proxy.addresses.contains(&credentials.peer)) {
        let named = headers.get(&proxy.header).and_then(|value| value.to_str().ok());
        if let Some(name) = named.map(str::trim).filter(|name| !name.is_empty()) {
            guard::require_own_page(credentials.method, headers)?;
            rates.count(name)?;
            let scopes = if proxy.admins.iter().any(|admin| admin == name) {
                vec![Scope::Read, Scope::Admin]
            } else {
                vec![Scope::Read]
            };
            return Ok(Caller {
                name: name.to_owned(),
                token: None,
                scopes,
                session: None,
            });
        }
    }
    Err(Error::NoToken)
}

/// Returns the token of the header `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn cookies_and_tokens_are_found() {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::COOKIE,
            HeaderValue::from_static("a=1; backtrail_session=x; b=2"),
        );
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("bearer  y"));
        assert_eq!(cookie(&headers, COOKIE), Some("x"));
        assert_eq!(cookie(&headers, "backtrail"), None);
        assert_eq!(bearer(&headers), Some("y"));
    }

    #[test]
    fn administrators_may_read() {
        let caller = |scopes: &[Scope]| Caller {
            name: String::new(),
            token: None,
            scopes: scopes.to_vec(),
            session: None,
        };
        assert!(caller(&[Scope::Admin]).allows(Scope::Read));
        assert!(!caller(&[Scope::Admin]).allows(Scope::Ingest));
        assert!(caller(&[Scope::Read]).require(Scope::Admin).is_err());
    }
}
