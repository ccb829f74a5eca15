//! A hub of its own with a token of all scopes, and a stored crash if a test needs one.

use super::{User, crash};
use backtrail_tests::hub_process::{Answer, HubProcess, PATIENCE, token, until};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// A hub, and a user who signed in to it.
pub struct Filled {
    /// The directory of the configuration and of the data.
    pub folder: tempfile::TempDir,
    /// The hub.
    pub hub: HubProcess,
    /// A token with all scopes.
    pub token: String,
    /// The stored crash; empty without one.
    pub crash: String,
    /// Its group.
    pub group: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// The user.
    pub user: User,
}

impl Filled {
    /// Starts a hub with a stored crash.
    pub fn new() -> Self {
        let mut hub = Self::empty("");
        hub.bundle = crash(hub.user.home());
        let bundle = hub.bundle.clone();
        let stored = hub.pushed(&bundle);
        assert_eq!(stored["bundle"], "stored", "{stored}");
        let text = |key: &str| stored[key].as_str().unwrap().to_owned();
        (hub.crash, hub.group) = (text("id"), text("group"));
        hub
    }

    /// Starts an empty hub with more lines in its configuration.
    pub fn empty(configuration: &str) -> Self {
        let (folder, user) = (tempfile::tempdir().unwrap(), User::new());
        let config = folder.path().join("hub.toml");
        // Hundreds of requests come in a burst.
        let limits = "requests_per_second = 100000";
        let text = match configuration.contains("[limits]") {
            true => configuration.replace("[limits]", &format!("[limits]\n{limits}")),
            false => format!("{configuration}\n[limits]\n{limits}\n"),
        };
        fs::write(&config, text).unwrap();
        let data = folder.path().join("data");
        let token = token(&data, &["ingest", "read", "admin"]).unwrap();
        let hub = HubProcess::start(&data, &["--config", config.to_str().unwrap()]).unwrap();
        let file = user.home().join("token");
        fs::write(&file, &token).unwrap();
        let file = file.to_str().unwrap();
        let _ = user.run(&["login", &hub.address, "--token-file", file]).exited(0);
        Self {
            folder,
            hub,
            token,
            crash: String::new(),
            group: String::new(),
            bundle: PathBuf::new(),
            user,
        }
    }

    /// Pushes a bundle, and returns the crash after its check.
    pub fn pushed(&self, bundle: &Path) -> Value {
        let run = self
            .user
            .run(&["push", bundle.to_str().unwrap(), "--json"])
            .exited(0);
        let pushed: Value = serde_json::from_str(&run.stdout).unwrap();
        self.checked(pushed["id"].as_str().unwrap())
    }

    /// Waits for the check of a bundle, and returns the crash.
    pub fn checked(&self, id: &str) -> Value {
        until("the bundle is checked", || {
            let crash = self.get(&format!("/api/v1/crashes/{id}")).json();
            let state = crash["bundle"].as_str().unwrap_or_default().to_owned();
            (!["wanted", "checking"].contains(&&*state)).then_some(crash)
        })
    }

    /// Sends a request, and returns the answer.
    pub fn get(&self, path: &str) -> Answer {
        self.hub.request("GET", path, Some(&self.token), b"").unwrap()
    }

    /// Sends a body, and returns the answer.
    pub fn post(&self, path: &str, body: &str) -> Answer {
        let token = Some(&*self.token);
        self.hub.request("POST", path, token, body.as_bytes()).unwrap()
    }

    /// Reports a crash whose bundle the hub wants. Returns the packed bundle, the identifier of the
    /// report, and the digest.
    pub fn wanted(&self) -> (PathBuf, String, String) {
        let id = "0123456789abcdefghjk";
        let report = json!([{
            "version": 1, "id": id, "time": 1, "host": "web-17", "service": "other", "build": "1.0",
            "executable": "/srv/other", "signal": 11, "code": 1, "pid": 1, "tid": 1, "bundle_size": 7,
            "frames": [{"module": "/srv/other", "build_id": "a1b2", "offset": 16}],
        }]);
        let receipts = self.post("/api/v1/reports", &report.to_string());
        let receipt = receipts.json()[0].clone();
        assert!(receipt["wants"].is_object(), "{receipt}");
        let packed = self.user.home().join("wanted.btz");
        let (bundle, target) = (self.bundle.to_str().unwrap(), packed.to_str().unwrap());
        let _ = self.user.run(&["pack", bundle, "-o", target]).exited(0);
        let sha256 = digest(&packed);
        (packed, id.to_owned(), sha256)
    }

    /// Returns the lines of the head of a TUS request with a token, without the last one.
    pub fn tus_head(&self, length: usize) -> String {
        format!(
            "Authorization: Bearer {}\r\nTus-Resumable: 1.0.0\r\nContent-Length: {length}\r\n\
             Content-Type: application/offset+octet-stream\r\n",
            self.token
        )
    }

    /// Makes a token with a scope, and returns its identifier and its secret.
    pub fn token(&self, scope: &str) -> (String, String) {
        let wish = json!({ "name": scope, "scopes": [scope] });
        let made = self.post("/api/v1/tokens", &wish.to_string()).json();
        let text = |key: &str| made[key].as_str().unwrap().to_owned();
        (text("id"), text("token"))
    }

    /// Opens a connection.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.hub.address.trim_start_matches("http://"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends bytes as they are with the hub's name, and returns the status. `None`: the hub closed
    /// the connection without an answer.
    pub fn send(&self, line: &str, head: &str, body: &[u8]) -> Option<u16> {
        let mut stream = self.connect().unwrap();
        let host = self.hub.address.trim_start_matches("http://");
        let text = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{head}\r\n");
        // A hub that refuses a request closes the connection early.
        let _ = stream
            .write_all(text.as_bytes())
            .and_then(|()| stream.write_all(body));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// Uploads bytes by TUS in one request, and returns the status.
    pub fn upload(&self, kind: &str, subject: &str, content: &[u8]) -> Option<u16> {
        let file = self.folder.path().join("uploaded");
        fs::write(&file, content).unwrap();
        let head = self.tus_head(content.len());
        let metadata = metadata(kind, subject, &digest(&file));
        let head = format!("{head}Upload-Length: {}\r\n{metadata}", content.len());
        self.send("POST /api/v1/uploads", &head, content)
    }
}

/// Returns the header that describes an upload.
pub fn metadata(kind: &str, subject: &str, sha256: &str) -> String {
    let pairs = [("kind", kind), ("subject", subject), ("sha256", sha256)];
    let pairs = pairs.map(|(key, value)| format!("{key} {}", base64(value)));
    format!("Upload-Metadata: {}\r\n", pairs.join(","))
}

/// Returns the SHA-256 of a file.
pub fn digest(file: &Path) -> String {
    let output = std::process::Command::new("sha256sum")
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').next().unwrap().to_owned()
}

/// Returns a text in base64 (RFC 4648).
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            let is_there = digit <= three.len();
            out.push(if is_there {
                char::from(DIGITS[value as usize])
            } else {
                '='
            });
        }
    }
    out
}
