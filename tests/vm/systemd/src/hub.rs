//! The hub, under the unit that `backtrail-hub unit` prints: a crash is sent, and analyzed by a
//! child process that limits itself within the unit's limits.

use crate::systemd::{crashes, journal, property, said, systemctl, unit, until, write};
use crate::{Outcome, Test};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub const TESTS: &[Test] = &[Test {
    name: "systemd/hub",
    run: hub,
}];

const UNIT: &str = "backtrail-hub.service";
const ADDRESS: &str = "127.0.0.1:7777";

fn hub() -> Outcome {
    write(
        "/etc/backtrail-hub/hub.toml",
        &format!("listen = \"{ADDRESS}\"\n"),
    )?;
    unit(UNIT, &said("backtrail-hub", &["unit"])?)?;
    // The unit is of the type notify: this waits until the hub serves.
    systemctl(&["start", UNIT]).map_err(explained)?;
    let first = until("the first token", || Ok(token()))?;
    // The first token is an administrator's, who makes one for the host.
    let wish = r#"{"name": "host", "scopes": ["ingest"]}"#;
    let host = ask("POST", "/api/v1/tokens", &first, wish)?;
    write("/run/token", host["token"].as_str().ok_or("there is no token")?)?;
    let crashes = crashes()?;
    let recorded = crashes
        .iter()
        .find(|crash| crash["history_bytes"].as_u64() > Some(0));
    let bundle = recorded.and_then(|crash| crash["bundle"].as_str());
    let bundle = bundle.ok_or("the spool has no crash with history")?;
    let address = format!("http://{ADDRESS}");
    let arguments = ["push", bundle, "--hub", &address, "--token-file", "/run/token"];
    said("backtrail", &arguments).map_err(explained)?;
    let id = until("the crash", || {
        let list = get("/api/v1/crashes", &first)?;
        Ok(list[0]["id"].as_str().map(str::to_owned))
    })?;
    let path = format!("/api/v1/crashes/{id}");
    let crash = until("its analysis", || {
        let crash = get(&path, &first)?;
        match crash["bundle_problem"].as_str() {
            Some(problem) => Err(explained(problem.to_owned())),
            None => Ok(Some(crash).filter(|crash| !crash["analysis"].is_null())),
        }
    })
    .map_err(explained)?;
    if !crash["analysis"]["crashed"]["frames"].to_string().contains("pay") {
        return Err(format!("the stack is {}", crash["analysis"]["crashed"]));
    }
    systemctl(&["restart", UNIT]).map_err(explained)?;
    if get(&path, &first)?["analysis"] != crash["analysis"] {
        return Err("the restarted hub has another analysis".into());
    }
    systemctl(&["stop", UNIT])?;
    let ending = (property(UNIT, "Result")?, property(UNIT, "ExecMainStatus")?);
    if ending != ("success".to_owned(), "0".to_owned()) {
        return Err(explained(format!("the hub ended with {ending:?}")));
    }
    Ok(())
}

/// Returns the token of the first start.
fn token() -> Option<String> {
    let log = journal(&["--unit", UNIT, "--output=cat"]);
    let (_, token) = log.split_once("shown once: ")?;
    token.split_whitespace().next().map(str::to_owned)
}

fn explained(why: String) -> String {
    format!("{why}: {}", journal(&["--unit", UNIT, "--lines", "20"]))
}

/// Returns the answer to a request without a body.
fn get(path: &str, token: &str) -> Result<Value, String> {
    ask("GET", path, token, "")
}

/// Returns the answer to a request.
fn ask(method: &str, path: &str, token: &str, body: &str) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("the hub does not answer: {error}");
    let mut stream = TcpStream::connect(ADDRESS).map_err(failed)?;
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .map_err(failed)?;
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {ADDRESS}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head
        .split(' ')
        .nth(1)
        .is_some_and(|status| status.starts_with('2'))
    {
        return Err(format!("the hub answers {head}"));
    }
    serde_json::from_str(body).map_err(|error| format!("{error} in {body}"))
}
