//! Addresses from which traces may be fetched, and their origins.

use ureq::http::Uri;

/// Parses an address from which fetching is allowed: HTTPS, or HTTP on this machine.
///
/// # Errors
/// The problem of an address that is not allowed.
pub fn allowed_uri(address: &str) -> Result<Uri, &'static str> {
    let uri: Uri = address.parse().map_err(|_| "it is not an address")?;
    let authority = uri.authority().ok_or("it has no host")?;
    if authority.as_str().contains('@') {
        return Err("it contains a user name");
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if is_loopback(authority.host()) => Ok(uri),
        Some("http") => Err("HTTP is allowed for this machine only; use an HTTPS address"),
        _ => Err("it is not an HTTPS address"),
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns scheme, host and port in a browser's form, without the scheme's default port.
pub fn origin(uri: &Uri) -> Option<String> {
    let scheme = uri.scheme_str()?;
    let host = uri.host()?.to_ascii_lowercase();
    let default = if scheme == "https" { 443 } else { 80 };
    Some(match uri.port_u16().filter(|port| *port != default) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Returns the origin that a text consists of, with or without a final slash; `None` if it is not
/// an allowed one.
pub fn origin_of(text: &str) -> Option<String> {
    let uri = allowed_uri(text).ok()?;
    let is_alone = uri.path_and_query().is_none_or(|rest| rest.as_str() == "/") && !text.contains(['?', '#']);
    origin(&uri).filter(|_| is_alone)
}
