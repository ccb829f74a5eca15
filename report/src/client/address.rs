//! The address of a hub.

use super::Error;
use std::fmt;
use ureq::http::Uri;

/// The address of a hub: HTTPS, or HTTP on this machine. It is scheme, host and port in a browser's
/// form, without the scheme's default port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HubAddress(String);

impl HubAddress {
    /// Parses an address. HTTP to other machines is allowed only if `allows_http`, because it
    /// shows the token and the crashes to the network.
    ///
    /// # Errors
    /// Fails if the text is no such address, or has a user name, a path, a query or a fragment.
    pub fn parse(text: &str, allows_http: bool) -> Result<Self, Error> {
        let refused = |problem| Error::Address {
            address: text.chars().take(200).collect(),
            problem,
        };
        let uri: Uri = text.parse().map_err(|_| refused("it is not an address"))?;
        let authority = uri.authority().ok_or_else(|| refused("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(refused("it contains a user name"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('#') {
            return Err(refused("an address of a hub is scheme, host and port alone"));
        }
        let is_refused = match uri.scheme_str() {
            Some("https") => None,
            Some("http") if allows_http || is_loopback(authority.host()) => None,
            Some("http") => Some("HTTP is allowed for this machine only; use an HTTPS address"),
            None => Some("it has no scheme; write https://, or http:// on this machine"),
            Some(_) => Some("it is not an HTTPS address"),
        };
        if let Some(problem) = is_refused {
            return Err(refused(problem));
        }
        origin(&uri).map(Self).ok_or_else(|| refused("it has no host"))
    }

    /// Returns scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0
    }

    /// Returns the URL of a path of the hub, which begins with a slash.
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Returns the URL that a `Location` header names, if it is of the same origin.
    pub(super) fn resolve(&self, location: &str) -> Option<String> {
        let url = match location.starts_with('/') && !location.starts_with("//") {
            true => format!("{}{location}", self.0),
            false => location.to_owned(),
        };
        let uri: Uri = url.parse().ok()?;
        let has_user = uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'));
        (!has_user && origin(&uri)? == self.0).then_some(url)
    }
}

impl fmt::Display for HubAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn origin(uri: &Uri) -> Option<String> {
    let scheme = uri.scheme_str()?;
    let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
    let default = if scheme == "https" { 443 } else { 80 };
    Some(match uri.port_u16().filter(|port| *port != default) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        let address = HubAddress::parse(text, false);
        address
            .map(|address| address.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_written_one_way() {
        for (text, expected) in [
            ("https://Hub.example.com", "https://hub.example.com"),
            ("https://hub.example.com:443/", "https://hub.example.com"),
            ("http://127.0.0.1:7777", "http://127.0.0.1:7777"),
            ("http://[::1]:80", "http://[::1]"),
            ("http://localhost", "http://localhost"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn addresses_that_would_show_the_token_are_refused() {
        for text in [
            "",
            "hub",
            "ftp://hub.example.com",
            "http://hub.example.com",
            "http://127.0.0.1.example.com",
            "https://user:word@hub.example.com",
            "https://hub.example.com/crashes",
            "https://hub.example.com/?a=b",
            "https://hub.example.com/#a",
            "https:///a",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
        assert!(HubAddress::parse("http://hub.example.com", true).is_ok());
    }

    #[test]
    fn locations_of_another_origin_are_refused() {
        let hub = HubAddress::parse("https://hub.example.com", false).unwrap();
        assert_eq!(hub.join("/c"), "https://hub.example.com/c");
        for (location, expected) in [
            ("/a/uploads/1", Some("https://hub.example.com/a/uploads/1")),
            ("https://hub.example.com/u", Some("https://hub.example.com/u")),
            ("http://hub.example.com/u", None),
            ("https://other.example.com/u", None),
            ("https://hub.example.com:444/u", None),
            ("https://user@hub.example.com/u", None),
            ("//other.example.com/u", None),
            ("uploads/1", None),
        ] {
            assert_eq!(hub.resolve(location).as_deref(), expected, "{location}");
        }
    }
}
