//! Links to crashes: `https://HUB/c/ID#POSITION`.

use super::{Error, HubAddress};
use crate::ReportId;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;

/// The longest position in bytes.
const MAX_POSITION: usize = 64;

/// A link to a crash at a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashLink {
    /// The hub.
    pub hub: HubAddress,
    /// The crash.
    pub id: ReportId,
    /// The position in its history. `None`: the crash.
    pub position: Option<String>,
}

impl CrashLink {
    /// Returns whether a text is an address, not a path.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        let scheme = text
            .split_once("://")
            .map(|(scheme, _)| scheme.to_ascii_lowercase());
        matches!(scheme.as_deref(), Some("http" | "https"))
    }

    /// Parses a link. See [`HubAddress::parse`] for `allows_http`.
    ///
    /// # Errors
    /// Fails if the text is no such link, or if the address of the hub is not allowed.
    pub fn parse(text: &str, allows_http: bool) -> Result<Self, Error> {
        let wrong = || Error::Link(text.chars().take(200).collect());
        let (page, position) = match text.split_once('#') {
            Some((page, position)) => (page, Some(position)),
            None => (text, None),
        };
        let (hub, id) = page.trim_end_matches('/').rsplit_once("/c/").ok_or_else(wrong)?;
        let id = id.parse().map_err(|_| wrong())?;
        let position = position.filter(|position| !position.is_empty());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@#.+:_-".contains(&byte);
        if position.is_some_and(|position| position.len() > MAX_POSITION || !position.bytes().all(is_plain)) {
            return Err(wrong());
        }
        Ok(Self {
            hub: HubAddress::parse(hub, allows_http)?,
            id,
            position: position.map(str::to_owned),
        })
    }
}

impl CrashLink {
    /// Returns the link that opens the crash in VS Code (docs/vscode.md).
    #[must_use]
    pub fn to_vscode(&self) -> String {
        let mut payload = serde_json::json!({
            "v": 1,
            "origin": self.hub.origin(),
            "crash": self.id.as_str(),
        });
        if let (Some(position), Some(fields)) = (&self.position, payload.as_object_mut()) {
            fields.insert("at".to_owned(), position.as_str().into());
        }
        let payload = URL_SAFE_NO_PAD.encode(payload.to_string());
        format!("vscode://backtrail.backtrail/open?j={payload}")
    }
}

impl fmt::Display for CrashLink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.hub.join(&format!("/c/{}", self.id)))?;
        match &self.position {
            Some(position) => write!(formatter, "#{position}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_are_printed() {
        for text in [
            "https://hub.example.com/c/0123456789abcdefghjk",
            "https://hub.example.com:8443/c/0123456789abcdefghjk#t3497496#18220",
            "http://127.0.0.1:7777/c/0123456789abcdefghjk#c12",
        ] {
            assert_eq!(CrashLink::parse(text, false).unwrap().to_string(), text);
        }
        let link = CrashLink::parse("https://hub.example.com/c/0123456789abcdefghjk#t1#2", false).unwrap();
        assert_eq!(link.position.as_deref(), Some("t1#2"));
    }

    #[test]
    fn link_for_vscode_has_the_position() {
        let link = CrashLink::parse("https://hub.example.com/c/0123456789abcdefghjk#t1#2", false).unwrap();
        let text = link.to_vscode();
        let payload = text.strip_prefix("vscode://backtrail.backtrail/open?j=").unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
        let expected = serde_json::json!({
            "v": 1, "origin": "https://hub.example.com", "crash": "0123456789abcdefghjk", "at": "t1#2"
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn other_texts_are_no_links() {
        for text in [
            "https://hub.example.com/g/0123456789abcdefghjk",
            "https://hub.example.com/c/../../etc",
            "https://hub.example.com/below/c/0123456789abcdefghjk",
            "https://hub.example.com/c/0123456789abcdefghjk?x=1",
            "https://hub.example.com/c/0123456789abcdefghjk#a b",
            "http://hub.example.com/c/0123456789abcdefghjk",
            "/tmp/c/0123456789abcdefghjk",
        ] {
            assert!(CrashLink::parse(text, false).is_err(), "{text}");
        }
        assert!(CrashLink::is_address("HTTPS://a") && !CrashLink::is_address("/tmp/a"));
    }
}
