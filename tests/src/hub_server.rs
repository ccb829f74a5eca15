//! A small hub whose faults are scripted, for tests of its clients.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The token that the hub accepts.
pub const TOKEN: &str = "bt_test_secret";
/// A location of uploads ends with a number.
const UPLOADS: &str = "/api/v1/uploads";
/// The longest body in bytes.
const MAX_BODY: u64 = 1 << 30;

/// A fault in place of the right answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// This status, with more header lines.
    Status(u16, &'static str),
    /// The connection is closed after this many bytes of the body, which an upload keeps.
    Cut(u64),
    /// The request is done, but the answer is lost.
    LostAnswer,
    /// No answer for this many milliseconds.
    Hang(u64),
}

/// The contents of the hub, and its behavior.
#[derive(Debug, Default)]
pub struct HubState {
    /// The faults of the next requests that change something, in order.
    pub faults: VecDeque<Fault>,
    /// Whether every request fails.
    pub is_down: bool,
    /// Whether the hub asks for no bundle.
    pub wants_nothing: bool,
    /// The build ids of modules that the hub has.
    pub modules: BTreeSet<String>,
    /// The reports by their identifiers.
    pub reports: BTreeMap<String, Value>,
    /// The number of reports that came, with repeated ones.
    pub received: usize,
    /// The complete bundles by the identifiers of their reports.
    pub bundles: BTreeMap<String, Vec<u8>>,
    /// The heartbeats in order.
    pub heartbeats: Vec<Value>,
    /// Method and path of each request.
    pub requests: Vec<String>,
    /// The bundles to download: content and stated digest.
    pub downloads: BTreeMap<String, (Vec<u8>, String)>,
    /// Uploads by their paths: subject, size and content.
    uploads: BTreeMap<String, (String, usize, Vec<u8>)>,
}

/// A running hub.
#[derive(Debug)]
pub struct HubServer {
    /// Its address.
    pub address: String,
    state: Arc<Mutex<HubState>>,
}

/// A request.
struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    /// Whether the body was cut off.
    is_cut: bool,
}

/// Status, header lines and body.
type Answer = (u16, String, Vec<u8>);

impl HubServer {
    /// Starts a hub on a free port.
    ///
    /// # Errors
    /// Fails if there is no free port.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(Mutex::new(HubState::default()));
        let (shared, own) = (Arc::clone(&state), address.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, own) = (Arc::clone(&shared), own.clone());
                std::thread::spawn(move || {
                    // A client that closes the connection is no failure.
                    let _ = serve(&stream, &shared, &own);
                });
            }
        });
        Ok(Self { address, state })
    }

    /// Returns what the hub has.
    pub fn state(&self) -> MutexGuard<'_, HubState> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<HubState>) -> MutexGuard<'_, HubState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut stream: &TcpStream, state: &Mutex<HubState>, own: &str) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Ok(());
    };
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let (fault, is_down) = {
        let mut state = lock(state);
        state.requests.push(format!("{method} {path}"));
        let changes = matches!(method, "POST" | "PATCH");
        let fault = if changes { state.faults.pop_front() } else { None };
        (fault.unwrap_or(Fault::None), state.is_down)
    };
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0u64);
    let taken = match fault {
        Fault::Cut(most) => length.min(most),
        _ => length,
    };
    let mut body = Vec::new();
    reader.take(taken.min(MAX_BODY)).read_to_end(&mut body)?;
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        is_cut: taken != length,
        headers,
        body,
    };
    let (status, more, answer) = match fault {
        _ if is_down => (503, String::new(), Vec::new()),
        Fault::Status(status, more) => (status, more.to_owned(), br#"{"error":"as scripted"}"#.to_vec()),
        Fault::Hang(millis) => {
            std::thread::sleep(Duration::from_millis(millis));
            return Ok(());
        }
        _ => answer_to(&mut lock(state), &request, own),
    };
    if matches!(fault, Fault::Cut(_) | Fault::LostAnswer) {
        return Ok(());
    }
    let size = answer.len();
    let head =
        format!("HTTP/1.1 {status} Answer\r\n{more}Content-Length: {size}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    if request.method != "HEAD" {
        stream.write_all(&answer)?;
    }
    Ok(())
}

fn answer_to(state: &mut HubState, request: &Request, own: &str) -> Answer {
    let token = request.headers.get("authorization").map(String::as_str);
    if token != Some(&format!("Bearer {TOKEN}")) {
        return (401, String::new(), br#"{"error":"unknown token"}"#.to_vec());
    }
    let json = |value: Value| {
        (
            200,
            "Content-Type: application/json\r\n".to_owned(),
            value.to_string().into_bytes(),
        )
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/api/v1/whoami") => json(json!({ "name": "tests", "scopes": ["ingest", "read"] })),
        ("POST", "/api/v1/reports") if !request.is_cut => match serde_json::from_slice(&request.body) {
            Ok(Value::Array(reports)) => {
                json(reports.iter().map(|report| receipt(state, report, own)).collect())
            }
            _ => (400, String::new(), Vec::new()),
        },
        ("POST", "/api/v1/heartbeat") if !request.is_cut => {
            state
                .heartbeats
                .extend(serde_json::from_slice::<Value>(&request.body));
            json(json!({}))
        }
        ("POST", UPLOADS) => create(state, request),
        (_, path) if path.starts_with(UPLOADS) => take_piece(state, request),
        ("GET", path) => match state
            .downloads
            .get(path.trim_start_matches("/crash/").trim_end_matches(".btz"))
        {
            Some((content, digest)) => (200, format!("X-Content-SHA256: {digest}\r\n"), content.clone()),
            None => (404, String::new(), Vec::new()),
        },
        _ => (400, String::new(), Vec::new()),
    }
}

fn receipt(state: &mut HubState, report: &Value, own: &str) -> Value {
    let id = report["id"].as_str().unwrap_or_default().to_owned();
    state.received += 1;
    state.reports.insert(id.clone(), report.clone());
    let mut receipt = json!({ "id": id, "link": format!("{own}/c/{id}") });
    if !state.wants_nothing && !state.bundles.contains_key(&id) && !report["bundle_size"].is_null() {
        let offered = report["modules"].as_array().into_iter().flatten();
        let ids = offered.filter_map(|module| module["build_id"].as_str());
        let missing: Vec<&str> = ids.filter(|id| !state.modules.contains(*id)).collect();
        receipt["wants"] = json!({ "reason": "unknown-signature", "modules": missing });
    }
    receipt
}

fn create(state: &mut HubState, request: &Request) -> Answer {
    let metadata = request
        .headers
        .get("upload-metadata")
        .cloned()
        .unwrap_or_default();
    // The subject is the second value. Identifiers are recognized by their base64.
    let subject = state
        .reports
        .keys()
        .find(|id| metadata.contains(&base64(id.as_bytes())))
        .cloned();
    let length = request
        .headers
        .get("upload-length")
        .and_then(|length| length.parse().ok());
    let (Some(subject), Some(length)) = (subject, length) else {
        return (400, String::new(), Vec::new());
    };
    let location = format!("{UPLOADS}/{}", state.uploads.len());
    state
        .uploads
        .insert(location.clone(), (subject, length, Vec::new()));
    (201, format!("Location: {location}\r\n"), Vec::new())
}

fn take_piece(state: &mut HubState, request: &Request) -> Answer {
    let Some((subject, length, content)) = state.uploads.get_mut(&request.path) else {
        return (404, String::new(), Vec::new());
    };
    if request.method == "PATCH" {
        if request.headers.get("upload-offset") != Some(&content.len().to_string()) {
            return (409, String::new(), Vec::new());
        }
        content.extend_from_slice(&request.body);
        if content.len() == *length {
            state.bundles.insert(subject.clone(), content.clone());
        }
    }
    (200, format!("Upload-Offset: {}\r\n", content.len()), Vec::new())
}

/// Returns bytes in base64, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, index| {
            word << 8 | u32::from(group.get(index).copied().unwrap_or(0))
        });
        for index in 0..4 {
            let digit = DIGITS
                .get((word >> (18 - 6 * index) & 63) as usize)
                .copied()
                .unwrap_or(b'=');
            text.push(if index <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        assert_eq!(
            ["", "a", "ab", "abc"].map(|text| base64(text.as_bytes())),
            ["", "YQ==", "YWI=", "YWJj"]
        );
    }
}
