//! Running a hub: its counters, and its end while it has work.

use super::filled::{Filled, metadata};
use backtrail_tests::hub_process::{HubProcess, until};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Reads the text format of Prometheus: each counter has a help text, a type and one value.
fn metrics(filled: &Filled) -> BTreeMap<String, f64> {
    let answer = filled.hub.request("GET", "/metrics", None, b"").unwrap();
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .head
            .to_lowercase()
            .contains("content-type: text/plain; version=0.0.4"),
        "{}",
        answer.head
    );
    let text = answer.text();
    let (mut described, mut typed, mut values) = (Vec::new(), Vec::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(!help.is_empty(), "{line}");
            described.push(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            typed.push(name);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(name.bytes().all(is_name), "{line}");
            assert!(labels.is_empty() || labels.ends_with("\"}"), "{line}");
            let earlier = values.insert(series.to_owned(), value.parse().unwrap());
            assert_eq!(earlier, None, "{line}");
        }
    }
    let name_of = |series: &'_ String| series.split('{').next().map(str::to_owned);
    let names: BTreeSet<String> = values.keys().filter_map(name_of).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for list in [&mut described, &mut typed] {
        list.sort_unstable();
        assert_eq!(*list, names, "{text}");
    }
    values
}

#[test]
fn metrics_count_what_the_hub_has() {
    let filled = Filled::new();
    let found = metrics(&filled);
    for (name, value) in [
        ("reports", 1.0),
        ("groups", 1.0),
        ("bundles", 1.0),
        ("uploads", 0.0),
    ] {
        assert_eq!(
            found[&format!("backtrail_hub_{name}")],
            value,
            "{name}: {found:?}"
        );
    }
    let beat = json!({ "version": 1, "host": "web-18", "collector": "1.0", "running": [] });
    assert_eq!(filled.post("/api/v1/heartbeat", &beat.to_string()).status, 204);
    let hosts = found["backtrail_hub_hosts"];
    let (packed, id, digest) = filled.wanted();
    let length = fs::metadata(&packed).unwrap().len();
    let head =
        filled.tus_head(0) + &format!("Upload-Length: {length}\r\n") + &metadata("bundle", &id, &digest);
    let head = head.replace("Content-Type: application/offset+octet-stream\r\n", "");
    assert_eq!(filled.send("POST /api/v1/uploads", &head, b""), Some(201));
    let found = metrics(&filled);
    // The other host is the one of the wanted report.
    for (name, value) in [
        ("reports", 2.0),
        ("groups", 2.0),
        ("uploads", 1.0),
        ("hosts", hosts + 2.0),
    ] {
        assert_eq!(
            found[&format!("backtrail_hub_{name}")],
            value,
            "{name}: {found:?}"
        );
    }
}

/// Reads an answer up to the end of its connection, and returns its status.
fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.split(' ').nth(1)?.parse().ok()
}

#[test]
fn request_that_runs_ends_before_the_hub_does() {
    let mut filled = Filled::new();
    let (packed, id, digest) = filled.wanted();
    let content = fs::read(&packed).unwrap();
    let host = filled.hub.address.trim_start_matches("http://").to_owned();
    let (first, rest) = content.split_at(content.len() / 2);
    // One request has sent half of its body, and one connection waits for its next request.
    let mut upload = filled.connect().unwrap();
    let head = format!(
        "POST /api/v1/uploads HTTP/1.1\r\nHost: {host}\r\nUpload-Length: {}\r\n{}{}\r\n",
        content.len(),
        filled.tus_head(content.len()),
        metadata("bundle", &id, &digest)
    );
    upload.write_all(head.as_bytes()).unwrap();
    upload.write_all(first).unwrap();
    let mut idle = filled.connect().unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
    idle.write_all(request.as_bytes()).unwrap();
    let mut beginning = [0; 12];
    idle.read_exact(&mut beginning).unwrap();
    assert_eq!(&beginning, b"HTTP/1.1 200");
    until("the upload has begun", || {
        (metrics(&filled)["backtrail_hub_uploads"] > 0.0).then_some(())
    });
    std::thread::scope(|scope| {
        let hub = &mut filled.hub;
        let stopping = scope.spawn(move || hub.stop().unwrap());
        until("no connection is taken", || {
            TcpStream::connect(&host).err().map(|_| ())
        });
        // The connection that waits is closed at once.
        let _ = idle.read_to_end(&mut Vec::new()).unwrap();
        upload.write_all(rest).unwrap();
        assert_eq!(status(&mut upload), Some(201));
        assert_eq!(stopping.join().unwrap(), Some(0));
    });
    // The next hub continues with the bundle.
    let config = filled.folder.path().join("hub.toml");
    let data = filled.folder.path().join("data");
    filled.hub = HubProcess::start(&data, &["--config", config.to_str().unwrap()]).unwrap();
    let crash = filled.checked(&id);
    assert_eq!(crash["bundle"], "stored", "{crash}");
}
