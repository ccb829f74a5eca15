//! Static files: style sheet, scripts and icon, which are parts of the binary.
//!
//! A page names a file with the hash of its content. That address never changes its content, so it
//! is cached for ever. An address without the hash is checked by its `ETag` each time.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::OnceLock;

/// A static file.
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

/// All static files.
const ASSETS: &[Asset] = &[
    Asset {
        name: "hub.css",
        kind: "text/css; charset=utf-8",
        content: include_str!("../../static/hub.css"),
    },
    script("theme.js", include_str!("../../static/theme.js")),
    script("brush.js", include_str!("../../static/brush.js")),
    script("crash.js", include_str!("../../static/crash.js")),
    script("groups.js", include_str!("../../static/groups.js")),
    script("jobs.js", include_str!("../../static/jobs.js")),
    script("heat_map.js", include_str!("../../static/heat_map.js")),
    script("profiles.js", include_str!("../../static/profiles.js")),
    script("progress.js", include_str!("../../static/progress.js")),
    script("sql.js", include_str!("../../static/sql.js")),
    script("timeline.js", include_str!("../../static/timeline.js")),
    Asset {
        name: "icon.svg",
        kind: "image/svg+xml",
        content: include_str!("../../static/icon.svg"),
    },
];

/// The query that names the content of a file.
const HASH: &str = "v=";

const fn script(name: &'static str, content: &'static str) -> Asset {
    Asset {
        name,
        kind: "text/javascript; charset=utf-8",
        content,
    }
}

/// Returns the hashes of the contents, in the order of [`ASSETS`].
fn hashes() -> &'static [String] {
    static HASHES: OnceLock<Vec<String>> = OnceLock::new();
    HASHES.get_or_init(|| {
        let hash = |asset: &Asset| {
            let mut text = String::new();
            for byte in Sha256::digest(asset.content).iter().take(8) {
                let _ = write!(text, "{byte:02x}");
            }
            text
        };
        ASSETS.iter().map(hash).collect()
    })
}

fn find(name: &str) -> Option<(&'static Asset, &'static str)> {
    let mut all = ASSETS.iter().zip(hashes());
    let (asset, hash) = all.find(|(asset, _)| asset.name == name)?;
    Some((asset, hash))
}

/// Returns the address of a static file, with the hash of its content.
#[must_use]
pub fn address(name: &str) -> String {
    match find(name) {
        Some((_, hash)) => format!("/static/{name}?{HASH}{hash}"),
        None => format!("/static/{name}"),
    }
}

/// Answers `GET /static/NAME?QUERY`.
#[must_use]
pub fn respond(name: &str, query: Option<&str>, request: &HeaderMap) -> Response<Body> {
    let Some((asset, hash)) = find(name) else {
        return with_status(StatusCode::NOT_FOUND, Body::empty());
    };
    let tag = format!("\"{hash}\"");
    let is_named = query.and_then(|query| query.strip_prefix(HASH)) == Some(hash);
    let cache = match is_named {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let known = request.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.is_some_and(|known| {
        let mut tags = known.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.any(|known| known == tag || known == "*")
    });
    let mut response = match is_known {
        true => with_status(StatusCode::NOT_MODIFIED, Body::empty()),
        false => with_status(StatusCode::OK, Body::from(asset.content)),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

fn with_status(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(response: &Response<Body>, name: &str) -> String {
        response.headers()[name].to_str().unwrap().to_owned()
    }

    #[test]
    fn named_content_is_cached_for_ever() {
        let address = address("hub.css");
        let (_, query) = address.split_once('?').unwrap();
        let response = respond("hub.css", Some(query), &HeaderMap::new());
        assert_eq!(response.status(), StatusCode::OK);
        assert!(header(&response, "cache-control").contains("immutable"));
        assert_eq!(header(&response, "content-type"), "text/css; charset=utf-8");
        let other = respond("hub.css", Some("v=0000000000000000"), &HeaderMap::new());
        assert_eq!(header(&other, "cache-control"), "no-cache");
    }

    #[test]
    fn known_content_is_not_sent_again() {
        let first = respond("theme.js", None, &HeaderMap::new());
        let mut request = HeaderMap::new();
        request.insert(IF_NONE_MATCH, first.headers()["etag"].clone());
        assert_eq!(
            respond("theme.js", None, &request).status(),
            StatusCode::NOT_MODIFIED
        );
        request.insert(IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(respond("theme.js", None, &request).status(), StatusCode::OK);
    }

    #[test]
    fn only_listed_names_are_files() {
        for name in ["", "..", "../Cargo.toml", "hub.css/", "HUB.CSS"] {
            assert_eq!(
                respond(name, None, &HeaderMap::new()).status(),
                StatusCode::NOT_FOUND
            );
        }
    }
}
