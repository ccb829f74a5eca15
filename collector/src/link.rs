//! Links that open a crash of the spool in VS Code (docs/vscode.md).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The origin that means the spool of the machine where the link is opened.
const SPOOL: &str = "spool";

/// Returns the link to a crash with this id.
#[must_use]
pub fn to(id: &str) -> String {
    let payload = serde_json::json!({ "v": 1, "origin": SPOOL, "crash": id });
    format!(
        "vscode://backtrail.backtrail/open?j={}",
        URL_SAFE_NO_PAD.encode(payload.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_names_the_crash_and_not_the_machine() {
        let link = to("000007-worker-42");
        let payload = link.split_once("?j=").unwrap().1;
        let json = URL_SAFE_NO_PAD.decode(payload).unwrap();
        assert_eq!(
            String::from_utf8(json).unwrap(),
            r#"{"crash":"000007-worker-42","origin":"spool","v":1}"#
        );
    }
}
