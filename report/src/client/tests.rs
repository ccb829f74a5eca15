//! The client against a small hub whose faults are scripted.

use super::*;
use crate::{ReportId, VERSION};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

/// A fault in place of the answer to the next request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// No fault.
    None,
    /// This status, with more headers.
    Status(u16, &'static str),
    /// The connection is closed after this many bytes of the body, which are kept.
    Cut(u64),
    /// No answer.
    Hang,
    /// The hub forgets all uploads first.
    Forget,
    /// The hub loses the last bytes first.
    Lose(u64),
}

/// The requests that the hub received, and its answers.
#[derive(Default)]
struct State {
    faults: VecDeque<Fault>,
    /// The content of the uploads by their paths.
    uploads: BTreeMap<String, Vec<u8>>,
    metadata: Vec<String>,
    /// Method and path of each request.
    requests: Vec<String>,
    /// The body of other requests' answers, with more headers.
    answer: (String, Vec<u8>),
    tokens: Vec<String>,
}

struct Hub {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Hub {
    fn start(faults: &[Fault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            faults: faults.iter().copied().collect(),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream.unwrap(), &shared));
            }
        });
        Self { address, state }
    }

    fn client(&self) -> HubClient {
        let address = HubAddress::parse(&self.address, false).unwrap();
        let limit = Duration::from_secs(2);
        HubClient::with_limits(address, Some("secret".parse().unwrap()), limit, limit)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn upload(&self, bytes: &[u8], resume: Option<&str>) -> Result<(), Error> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        self.upload_file(&file, resume, &mut |_| ControlFlow::Continue(()))
    }

    fn upload_file(
        &self,
        file: &File,
        resume: Option<&str>,
        on_event: &mut dyn FnMut(UploadEvent<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let upload = Upload {
            kind: UploadKind::Bundle,
            subject: "0123456789abcdefghjk",
            file,
            resume,
        };
        self.client().upload(upload, on_event)
    }
}

fn serve(mut stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut words = line.split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return;
    };
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let number = |name: &str| headers.get(name).and_then(|value| value.parse::<u64>().ok());
    let fault = {
        let mut state = state.lock().unwrap();
        state.requests.push(format!("{method} {path}"));
        state.tokens.extend(headers.get("authorization").cloned());
        state.faults.pop_front().unwrap_or(Fault::None)
    };
    let mut length = number("content-length").unwrap_or(0);
    match fault {
        Fault::Hang => {
            std::thread::sleep(Duration::from_secs(4));
            return;
        }
        Fault::Cut(size) => length = length.min(size),
        Fault::Forget => state.lock().unwrap().uploads.clear(),
        Fault::Lose(size) => {
            for content in state.lock().unwrap().uploads.values_mut() {
                content.truncate(content.len().saturating_sub(size as usize));
            }
        }
        Fault::None | Fault::Status(..) => {}
    }
    let mut body = vec![0; length as usize];
    reader.read_exact(&mut body).unwrap();
    let (status, more, answer) = match fault {
        Fault::Status(status, more) => (status, more.to_owned(), b"{\"error\":\"as scripted\"}".to_vec()),
        _ => answer_to(&mut state.lock().unwrap(), &method, &path, &headers, &body),
    };
    if matches!(fault, Fault::Cut(_)) {
        return;
    }
    let size = answer.len();
    let head = format!("HTTP/1.1 {status} X\r\n{more}Content-Length: {size}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    if method != "HEAD" {
        stream.write_all(&answer).unwrap();
    }
}

fn answer_to(
    state: &mut State,
    method: &str,
    path: &str,
    headers: &BTreeMap<String, String>,
    body: &[u8],
) -> (u16, String, Vec<u8>) {
    if path == "/api/v1/uploads" {
        let location = format!("/api/v1/uploads/{}", state.metadata.len());
        state.metadata.push(headers["upload-metadata"].clone());
        state.uploads.insert(location.clone(), Vec::new());
        return (201, format!("Location: {location}\r\n"), Vec::new());
    }
    if path.starts_with("/api/v1/uploads/") {
        let Some(content) = state.uploads.get_mut(path) else {
            return (404, String::new(), Vec::new());
        };
        if method == "PATCH" {
            if headers["upload-offset"] != content.len().to_string() {
                return (409, String::new(), Vec::new());
            }
            content.extend_from_slice(body);
        }
        return (200, format!("Upload-Offset: {}\r\n", content.len()), Vec::new());
    }
    let (headers, answer) = state.answer.clone();
    (200, headers, answer)
}

fn content() -> Vec<u8> {
    (0..20u32 << 18)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn report() -> CrashReport {
    CrashReport {
        version: VERSION,
        id: ReportId::random().unwrap(),
        time: 1,
        host: "web-17".to_owned(),
        service: "ledger".to_owned(),
        build: "1".to_owned(),
        executable: "/srv/ledger".to_owned(),
        signal: 11,
        code: 1,
        fault_address: None,
        pid: 1,
        tid: 1,
        thread: None,
        kernel: None,
        cpu: None,
        labels: BTreeMap::new(),
        frames: Vec::new(),
        frames_end: None,
        modules: Vec::new(),
        bundle_size: None,
    }
}

#[test]
fn reports_have_receipts_in_their_order() {
    let hub = Hub::start(&[]);
    let reports = [report(), report()];
    let receipt = |report: &CrashReport| format!("{{\"id\":\"{}\",\"link\":\"https://h/c/x\"}}", report.id);
    let [first, second] = [0, 1].map(|index| receipt(&reports[index]));
    hub.state().answer.1 = format!("[{first},{second}]").into_bytes();
    let receipts = hub.client().send(&reports).unwrap();
    assert_eq!(receipts[1].id, reports[1].id);
    assert_eq!(hub.state().tokens, ["Bearer secret"]);
    hub.state().answer.1 = format!("[{second},{first}]").into_bytes();
    let error = hub.client().send(&reports).unwrap_err();
    assert!(
        error.is_temporary() && error.to_string().contains("not for the reports"),
        "{error}"
    );
    hub.state().answer.1 = b"<html>sign in".to_vec();
    let error = hub.client().send(&reports).unwrap_err();
    assert!(error.to_string().contains("malformed"), "{error}");
}

#[test]
fn statuses_say_whether_to_try_again() {
    let hub = Hub::start(&[
        Fault::Status(500, ""),
        Fault::Status(429, "Retry-After: 7\r\n"),
        Fault::Status(503, "Retry-After: 99999999\r\n"),
        Fault::Status(400, ""),
        Fault::Status(401, ""),
        Fault::Status(302, "Location: http://127.0.0.1:1/\r\n"),
        Fault::Hang,
    ]);
    let client = hub.client();
    let next = || client.send(&[report()]).unwrap_err();
    let error = next();
    assert!(
        error.is_temporary() && error.to_string().contains("as scripted"),
        "{error}"
    );
    assert_eq!(next().retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(next().retry_after(), Some(Duration::from_secs(3600)));
    assert!(matches!(next(), Error::Refused { code: 400, .. }));
    assert!(next().is_unauthorized());
    assert!(matches!(next(), Error::Refused { code: 302, .. }));
    let error = next();
    assert!(
        matches!(error, Error::Connection { .. }) && error.is_temporary(),
        "{error}"
    );
    assert_eq!(hub.state().requests.len(), 7);
}

#[test]
fn upload_is_sent_in_pieces() {
    let hub = Hub::start(&[]);
    let content = content();
    let two_and_a_half = [&*content, &*content, &*content, &*content].concat();
    hub.upload(&two_and_a_half, None).unwrap();
    let state = hub.state();
    assert!(state.uploads["/api/v1/uploads/0"] == two_and_a_half);
    let patches = state
        .requests
        .iter()
        .filter(|request| request.starts_with("PATCH"));
    assert_eq!(patches.count(), 3);
    let metadata = &state.metadata[0];
    assert!(
        metadata.starts_with("kind YnVuZGxl,subject MDEyMzQ1Njc4OWFiY2RlZmdoams=,sha256 "),
        "{metadata}"
    );
}

#[test]
fn upload_survives_every_fault() {
    let faults = [
        Fault::Status(503, ""),
        Fault::None,
        Fault::Cut(1 << 20),
        Fault::None,
        Fault::Status(500, ""),
        Fault::None,
        Fault::Hang,
        Fault::Forget,
        Fault::None,
        Fault::Status(429, "Retry-After: 1\r\n"),
        Fault::None,
        Fault::Status(409, ""),
    ];
    let hub = Hub::start(&faults);
    let content = content();
    hub.upload(&content, None).unwrap();
    let state = hub.state();
    assert!(state.faults.is_empty());
    assert!(state.uploads.values().any(|kept| *kept == content));
}

#[test]
fn upload_that_the_hub_took_is_done() {
    // The answer to the last bytes is lost, and the hub has checked the file since.
    let faults = [
        Fault::None,
        Fault::Status(500, ""),
        Fault::Forget,
        Fault::Status(409, ""),
    ];
    let hub = Hub::start(&faults);
    hub.upload(b"abc", None).unwrap();
    assert!(hub.state().faults.is_empty());
    let hub = Hub::start(&[Fault::Status(409, "")]);
    let refused = hub.upload(b"abc", None);
    assert!(matches!(refused, Err(Error::Refused { code: 409, .. })));
}

#[test]
fn upload_resumes_where_the_hub_is() {
    let hub = Hub::start(&[]);
    let content = content();
    let location = "/api/v1/uploads/7";
    hub.state()
        .uploads
        .insert(location.to_owned(), content[..1 << 20].to_vec());
    hub.upload(&content, Some(location)).unwrap();
    assert!(hub.state().uploads[location] == content);
    assert_eq!(hub.state().requests[0], format!("HEAD {location}"));
    assert!(hub.state().metadata.is_empty());
    hub.state().uploads.clear();
    hub.upload(&content, Some(location)).unwrap();
    assert!(hub.state().uploads["/api/v1/uploads/0"] == content);
    // A location of another server is ignored.
    hub.upload(&content, Some("http://127.0.0.1:1/u")).unwrap();
    assert!(hub.state().uploads["/api/v1/uploads/1"] == content);
}

#[test]
fn hub_that_loses_bytes_gets_them_again() {
    let hub = Hub::start(&[Fault::None, Fault::None, Fault::Lose(3 << 20), Fault::None]);
    let content = [content(), content()].concat();
    hub.upload(&content, None).unwrap();
    assert!(hub.state().uploads["/api/v1/uploads/0"] == content);
}

#[test]
fn upload_ends_after_bounded_failures() {
    let hub = Hub::start(&[Fault::Status(500, ""); 100]);
    assert!(hub.upload(b"abc", None).unwrap_err().is_temporary());
    assert_eq!(hub.state().requests.len(), 5);
    let hub = Hub::start(&[Fault::Status(413, "")]);
    assert!(matches!(
        hub.upload(b"abc", None),
        Err(Error::Refused { code: 413, .. })
    ));
    assert_eq!(hub.state().requests.len(), 1);
    let hub = Hub::start(&[Fault::Status(429, "Retry-After: 300\r\n")]);
    let error = hub.upload(b"abc", None).unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(300)));
    let hub = Hub::start(&[
        Fault::None,
        Fault::Forget,
        Fault::None,
        Fault::Forget,
        Fault::None,
        Fault::Forget,
    ]);
    assert!(matches!(
        hub.upload(b"abc", None),
        Err(Error::Refused { code: 404, .. })
    ));
}

#[test]
fn canceled_upload_sends_no_more() {
    let hub = Hub::start(&[]);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content()).unwrap();
    let mut location = None;
    let canceled = hub.upload_file(&file, None, &mut |event| match event {
        UploadEvent::Started { location: at } => {
            location = Some(at.to_owned());
            ControlFlow::Continue(())
        }
        UploadEvent::Progress { done, .. } if done > 1 << 20 => ControlFlow::Break(()),
        UploadEvent::Progress { .. } => ControlFlow::Continue(()),
    });
    assert!(matches!(canceled, Err(Error::Canceled)));
    assert!(location.unwrap().ends_with("/api/v1/uploads/0"));
}

#[test]
fn download_is_checked() {
    let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let hub = Hub::start(&[]);
    let id: ReportId = "0123456789abcdefghjk".parse().unwrap();
    let get = |limit| {
        let mut file = tempfile::tempfile().unwrap();
        let download = Download {
            id: &id,
            file: &file,
            limit,
        };
        let digest = hub
            .client()
            .download(download, &mut |_, _| ControlFlow::Continue(()))?;
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Ok::<_, Error>((digest, text))
    };
    hub.state().answer = (
        format!("X-Content-SHA256: {}\r\n", digest.to_uppercase()),
        b"hello".to_vec(),
    );
    assert_eq!(get(5).unwrap(), (digest.to_owned(), "hello".to_owned()));
    assert_eq!(hub.state().requests[0], "GET /crash/0123456789abcdefghjk.btz");
    assert!(matches!(get(4), Err(Error::TooLarge { .. })));
    hub.state().answer.1 = b"hellO".to_vec();
    assert!(matches!(get(5), Err(Error::Digest { .. })));
    hub.state().answer.0.clear();
    assert!(matches!(get(5), Err(Error::Unexpected { .. })));
}

#[test]
fn whoami_names_the_token() {
    let hub = Hub::start(&[]);
    hub.state().answer.1 = b"{\"name\":\"ci\",\"scopes\":[\"ingest\"]}".to_vec();
    let identity = hub.client().whoami().unwrap();
    assert_eq!(
        (identity.name.as_str(), identity.scopes),
        ("ci", vec!["ingest".to_owned()])
    );
}
