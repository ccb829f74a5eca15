//! The hub itself, with `backtrail push` and `backtrail debug LINK` as its clients.

use super::{User, crash, login};
use backtrail_tests::hub_process::{HubProcess, token, until};
use serde_json::{Value, json};
use std::path::Path;

/// Pushes a bundle, and returns the crash after its bundle was checked.
pub fn pushed(user: &User, hub: &HubProcess, token: &str, bundle: &Path, build: &str) -> Value {
    let path = bundle.to_str().unwrap();
    let run = user.run(&["push", path, "--build", build, "--json"]).exited(0);
    let pushed: Value = serde_json::from_str(&run.stdout).unwrap();
    let id = pushed["id"].as_str().unwrap().to_owned();
    until("the bundle is checked", || {
        let path = format!("/api/v1/crashes/{id}");
        let crash = hub.request("GET", &path, Some(token), b"").unwrap().json();
        (!["wanted", "checking"].contains(&crash["bundle"].as_str().unwrap())).then_some(crash)
    })
}

/// Returns the groups of a search.
pub fn groups(hub: &HubProcess, token: &str, query: &str) -> Vec<Value> {
    let path = format!("/api/v1/groups{query}");
    let answer = hub.request("GET", &path, Some(token), b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["groups"].as_array().unwrap().clone()
}

#[test]
fn pushed_crash_is_grouped_shown_and_debugged() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), &["ingest", "read"]).unwrap();
    check_push(&token, &|| HubProcess::start(folder.path(), &[]).unwrap());
}

/// Pushes two crashes to a hub, opens the page and the bundle of one, and kills and starts the hub.
pub fn check_push(token: &str, start: &dyn Fn() -> HubProcess) {
    let user = User::new();
    let mut hub = start();
    login(&user, &hub, token);
    let bundle = crash(user.home());
    let stored = pushed(&user, &hub, token, &bundle, "1.0");
    assert_eq!(stored["bundle"], "stored", "{stored}");
    let id = stored["id"].as_str().unwrap();

    // Grouped by functions, and found by their names.
    let found = groups(&hub, token, "?q=post");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["title"], "SIGSEGV null read in post");
    assert_eq!(
        (&found[0]["reports"], &found[0]["bundles"]),
        (&json!(1), &json!(1))
    );
    assert!(groups(&hub, token, "?q=elsewhere").is_empty());

    // The page has the stack, and the link into VS Code.
    let page = hub.request("GET", &format!("/c/{id}"), Some(token), b"").unwrap();
    assert_eq!(page.status, 200);
    for wanted in [
        "settle",
        "Reverse debug in VS Code",
        "vscode://backtrail.backtrail/open?j=",
        "null pointer",
    ] {
        assert!(page.text().contains(wanted), "{wanted}");
    }
    assert!(
        page.head
            .to_lowercase()
            .contains("content-security-policy: default-src 'none'")
    );

    // A crash of another build at the same place is counted in the same group.
    let second = tempfile::tempdir().unwrap();
    let other = pushed(&user, &hub, token, &crash(second.path()), "1.1");
    assert_eq!(other["group"], stored["group"]);
    assert_eq!(groups(&hub, token, "")[0]["reports"], 2);

    // The link opens the whole bundle in the debugger.
    let link = format!("{}/c/{id}", hub.address);
    let run = user.run(&["debug", &link, "-e", "crash"]).exited(0);
    assert!(
        run.stdout.contains("SIGSEGV (segmentation fault) at address 0x0"),
        "{}",
        run.stdout
    );

    // A killed hub has everything when it runs again.
    hub.kill().unwrap();
    let mut hub = start();
    assert_eq!(groups(&hub, token, "")[0]["reports"], 2);
    assert_eq!(hub.stop().unwrap(), Some(0));
}

#[test]
fn report_that_is_sent_twice_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), &["ingest", "read"]).unwrap();
    let hub = HubProcess::start(folder.path(), &[]).unwrap();
    let report = json!([{
        "version": 1, "id": "0123456789abcdefghjk", "time": 1, "host": "web-17", "service": "ledger", "build": "1.0",
        "executable": "/srv/ledger", "signal": 11, "code": 1, "pid": 1, "tid": 1, "bundle_size": 7,
        "frames": [{"module": "/srv/ledger", "build_id": "a1b2", "offset": 16}],
    }]);
    let body = report.to_string();
    let answer = hub
        .request("POST", "/api/v1/reports", Some(&token), body.as_bytes())
        .unwrap();
    assert_eq!(answer.json()[0]["wants"]["reason"], "unknown-signature");
    // The same report again counts once.
    let answer = hub
        .request("POST", "/api/v1/reports", Some(&token), body.as_bytes())
        .unwrap();
    assert_eq!(answer.status, 200);
    let found = groups(&hub, &token, "");
    assert_eq!(
        (found.len(), &found[0]["reports"], &found[0]["provisional"]),
        (1, &json!(1), &json!(true))
    );
}

#[test]
fn strangers_and_foreign_names_get_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let read = token(folder.path(), &["read"]).unwrap();
    let hub = HubProcess::start(folder.path(), &[]).unwrap();
    let status =
        |method: &str, path: &str, token: Option<&str>| hub.request(method, path, token, b"").unwrap().status;
    assert_eq!(status("GET", "/healthz", None), 200);
    assert_eq!(status("GET", "/api/v1/groups", None), 401);
    assert_eq!(status("GET", "/api/v1/groups", Some("bthub_wrong")), 401);
    assert_eq!(status("POST", "/api/v1/reports", Some(&read)), 403);
    assert_eq!(status("GET", "/api/v1/tokens", Some(&read)), 403);
    assert_eq!(status("GET", "/c/..%2f..%2fetc%2fpasswd", Some(&read)), 404);
    assert_eq!(status("GET", "/crash/../hub.db", Some(&read)), 404);
    assert_eq!(status("GET", "/nowhere", None), 404);
    assert_eq!(status("DELETE", "/healthz", None), 405);
}
