//! Deliveries to HTTP servers of this process.

use super::*;
use crate::notify::address::system_lookup;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// Starts a server that takes connections, reads one request each, and gives each the answer.
/// Returns its address and the requests.
fn server(address: &str, answer: Vec<u8>) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind(address).unwrap();
    let bound = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut request = Vec::new();
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = connection.read(&mut part) {
                request.extend_from_slice(&part[..length]);
                if is_complete(&request) {
                    break;
                }
            }
            let _ = sender.send(String::from_utf8(request).unwrap());
            let _ = connection.write_all(&answer);
        }
    });
    (bound, receiver)
}

fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_lowercase()
            .strip_prefix("content-length: ")?
            .parse::<usize>()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}

fn local() -> AddressPolicy {
    AddressPolicy::new(["127.0.0.1/32", "hook.example"]).unwrap()
}

fn send(policy: &AddressPolicy, lookup: &Lookup, url: &str) -> Result<(), DeliveryError> {
    let request = WebhookRequest {
        url,
        body: r#"{"event":"new"}"#,
        secret: Some("key"),
        delivery: "d1",
        time: 1_790_000_000,
    };
    post(policy, lookup, &request)
}

fn send_to(answer: &[u8]) -> (Result<(), DeliveryError>, String) {
    let (address, requests) = server("127.0.0.1:0", answer.to_vec());
    let result = send(&local(), &system_lookup(), &format!("http://{address}/hook"));
    (result, requests.recv_timeout(Duration::from_secs(10)).unwrap())
}

#[test]
fn message_is_signed_and_named() {
    let (result, request) = send_to(b"HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(result, Ok(()));
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hook HTTP/1.1"), "{head}");
    assert_eq!(body, r#"{"event":"new"}"#);
    let header = |name: &str| {
        head.lines()
            .find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
            .unwrap_or_default()
    };
    assert_eq!(header(DELIVERY_HEADER), "d1");
    assert_eq!(header("content-type"), "application/json");
    let signature = header(SIGNATURE_HEADER);
    assert!(verify("key", &signature, body, 1_790_000_001, 300), "{signature}");
    assert!(!verify("other", &signature, body, 1_790_000_001, 300));
    assert!(!verify("key", &signature, body, 1_790_000_301, 300));
}

#[test]
fn signature_is_that_of_openssl() {
    // printf '1790000000.{}' | openssl dgst -sha256 -hmac key
    assert_eq!(
        signature("key", 1_790_000_000, "{}"),
        "t=1790000000,v1=099d33989336226b12c85da813adf6100e1bbab1e91bede9a41ddeb7882d66b8"
    );
    assert!(!verify("key", "t=1790000000", "{}", 1_790_000_000, 300));
    assert!(!verify("key", "v1=00", "{}", 1_790_000_000, 300));
    assert!(!verify("key", "", "{}", 0, 300));
}

#[test]
fn failures_are_temporary_or_permanent() {
    for (answer, is_temporary, message) in [
        (
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops",
            true,
            "127.0.0.1 answered 500 Internal Server Error: oops",
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            true,
            "127.0.0.1 answered 404 Not Found",
        ),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
            false,
            "127.0.0.1 answered 403 Forbidden",
        ),
    ] {
        let error = send_to(answer.as_bytes()).0.unwrap_err();
        assert_eq!(
            (error.is_temporary(), &*error.to_string()),
            (is_temporary, message)
        );
    }
    let (result, _) =
        send_to(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(
        result,
        Err(DeliveryError::Temporary { retry_after: Some(wait), .. }) if wait.as_secs() == 120
    ));
}

#[test]
fn redirect_is_not_followed() {
    let (target, requests) = server(
        "127.0.0.1:0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
    );
    let answer =
        format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{target}/\r\nContent-Length: 0\r\n\r\n");
    let error = send_to(answer.as_bytes()).0.unwrap_err();
    assert!(!error.is_temporary(), "{error}");
    assert!(requests.try_recv().is_err());
}

#[test]
fn endless_answer_is_cut() {
    let mut answer = b"HTTP/1.1 500 Internal Server Error\r\n\r\n".to_vec();
    answer.resize(4 << 20, b'x');
    let started = Instant::now();
    let error = send_to(&answer).0.unwrap_err();
    assert!(error.to_string().len() < 400, "{error}");
    assert!(started.elapsed() < WHOLE);
}

#[test]
fn silent_receiver_is_left_after_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let started = Instant::now();
    let error = send(&local(), &system_lookup(), &url).unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert!(started.elapsed() < WHOLE + Duration::from_secs(10));
}

#[test]
fn internal_address_is_refused_without_a_connection() {
    let (address, requests) = server("127.0.0.1:0", Vec::new());
    let policy = AddressPolicy::default();
    let lookup: Lookup = Arc::new(move |_, _| Ok(vec![address]));
    let error = send(&policy, &lookup, "https://hook.example/").unwrap_err();
    assert!(!error.is_temporary());
    assert_eq!(
        error.to_string(),
        "hook.example has the internal address 127.0.0.1: add it to `allowed_addresses` to allow it"
    );
    assert!(requests.recv_timeout(Duration::from_millis(100)).is_err());
}

#[test]
fn second_answer_of_the_name_server_is_not_used() {
    let (first, first_requests) = server(
        "127.0.0.1:0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
    );
    let (second, second_requests) = server(
        "127.0.0.2:0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
    );
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let lookup: Lookup = Arc::new(move |_, _| match counter.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(vec![first]),
        _ => Ok(vec![second]),
    });
    let url = format!("http://hook.example:{}/", first.port());
    assert_eq!(send(&local(), &lookup, &url), Ok(()));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(first_requests.recv_timeout(Duration::from_secs(5)).is_ok());
    assert!(second_requests.try_recv().is_err());
}
