//! Servers that fail, send too much, or have internal addresses.

use super::*;
use std::net::TcpListener;
use std::time::Instant;

/// Starts a server that gives one answer, and returns its address and its request.
fn server(answer: Vec<u8>) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|four| four == b"\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..read]);
        }
        let _ = stream.write_all(&answer);
        String::from_utf8(request).unwrap()
    });
    (address, thread)
}

fn upstream(server: &str, limit: u64) -> Upstream {
    Upstream::new(&Symbols {
        upstream: vec![server.to_owned()],
        allowed_addresses: vec!["127.0.0.1".to_owned()],
        upstream_bytes: limit,
        ..Symbols::default()
    })
    .unwrap()
}

fn fetch(
    answer: &str,
    kind: &str,
) -> (
    std::result::Result<Answer, UpstreamError>,
    Option<Vec<u8>>,
    String,
) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let (address, thread) = server(answer.as_bytes().to_vec());
    let upstream = upstream(&address, 8);
    let answer = upstream.fetch(&address, "abcd", kind, &target);
    (answer, std::fs::read(&target).ok(), thread.join().unwrap())
}

#[test]
fn found_files_are_written_with_their_name() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-DEBUGINFOD-FILE: a.debug\r\n\r\nabcd";
    let (answer, content, request) = fetch(head, "debuginfo");
    assert_eq!(answer.unwrap(), Answer::Found(Some("a.debug".to_owned())));
    assert_eq!(content.unwrap(), b"abcd");
    assert!(
        request.starts_with("GET /buildid/abcd/debuginfo HTTP/1.1\r\n"),
        "{request}"
    );
}

#[test]
fn paths_of_sources_are_encoded() {
    let (answer, content, request) =
        fetch("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "source/a b/c?d.c");
    assert_eq!(answer.unwrap(), Answer::Absent);
    assert_eq!(content, None);
    assert!(
        request.starts_with("GET /buildid/abcd/source/a%20b/c%3Fd.c HTTP"),
        "{request}"
    );
}

#[test]
fn large_files_and_failures_are_errors() {
    let (answer, ..) = fetch(
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789",
        "debuginfo",
    );
    assert!(matches!(answer, Err(UpstreamError::TooLarge(8))), "{answer:?}");
    for head in [
        "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n123",
        "nonsense\r\n\r\n",
    ] {
        let (answer, ..) = fetch(head, "debuginfo");
        assert!(
            matches!(answer, Err(UpstreamError::Server(_))),
            "{head}: {answer:?}"
        );
    }
}

#[test]
fn silent_server_is_given_up_after_five_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let answer = upstream(&address, 8).fetch(&address, "abcd", "debuginfo", &folder.path().join("file"));
    assert!(matches!(answer, Err(UpstreamError::Server(_))), "{answer:?}");
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
}

#[test]
fn internal_addresses_are_refused() {
    let config = |server: &str| Symbols {
        upstream: vec![server.to_owned()],
        ..Symbols::default()
    };
    let error = Upstream::new(&config("http://127.0.0.1:1"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("symbols.upstream: http://127.0.0.1:1: "),
        "{error}"
    );
    let upstream = Upstream::new(&config("https://localhost:1/")).unwrap();
    assert_eq!(upstream.servers(), ["https://localhost:1"]);
    let folder = tempfile::tempdir().unwrap();
    let answer = upstream.fetch(
        "https://localhost:1",
        "abcd",
        "debuginfo",
        &folder.path().join("file"),
    );
    assert!(answer.unwrap_err().to_string().contains("internal address"));
}

#[test]
fn one_file_has_one_lock() {
    let upstream = Upstream::new(&Symbols::default()).unwrap();
    let one = upstream.lock("abcd", "debuginfo");
    assert!(Arc::ptr_eq(&one, &upstream.lock("abcd", "debuginfo")));
    assert!(!Arc::ptr_eq(&one, &upstream.lock("abcd", "executable")));
}
