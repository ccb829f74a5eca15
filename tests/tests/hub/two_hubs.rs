//! Two hubs on PostgreSQL and one bucket: either continues what the other one began.

use super::bucket::{Bucket, Site};
use super::fleet::{Fleet, check_whole, get, index, push};
use super::postgres::Postgres;
use backtrail_tests::hub_process::{HubProcess, until};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// A receiver of webhooks. It runs until the tests end.
struct Receiver {
    address: SocketAddr,
    alerts: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let alerts = Arc::new(Mutex::new(Vec::new()));
        let received = alerts.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let mut length = 0;
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    let (name, value) = line.split_once(':').unwrap_or_default();
                    if name.eq_ignore_ascii_case("content-length") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_ok() {
                    received
                        .lock()
                        .unwrap()
                        .push(serde_json::from_slice(&body).unwrap());
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    let _ = reader.get_mut().write_all(answer);
                }
            }
        });
        Self { address, alerts }
    }

    fn alerts(&self) -> Vec<Value> {
        self.alerts.lock().unwrap().clone()
    }

    fn settings(&self) -> String {
        format!(
            "allowed_addresses = [\"127.0.0.1\"]\n[[alert]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://{}/\"\n",
            self.address
        )
    }
}

/// Returns a report with an identifier of a digit.
fn report(digit: char, host: &str) -> Value {
    let id: String = std::iter::repeat_n(digit, 20).collect();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    json!({
        "version": 1, "id": id, "time": time.as_micros() as u64, "host": host, "service": "ledger",
        "build": "1.0", "executable": "/srv/ledger", "signal": 11, "code": 1, "pid": 1, "tid": 1,
        "bundle_size": 7, "frames": [{"module": "/srv/ledger", "build_id": "a1b2", "offset": 16}],
    })
}

#[track_caller]
fn send_report(hub: &HubProcess, token: &str, report: &Value) {
    let body = json!([report]).to_string();
    let answer = hub
        .request("POST", "/api/v1/reports", Some(token), body.as_bytes())
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// An upload in parts, through any hub.
struct Upload {
    path: String,
    packed: Vec<u8>,
}

impl Upload {
    fn begin(hub: &HubProcess, token: &str, fleet: &mut Fleet, id: &str) -> Self {
        let bundle = fleet.bundle();
        let packed = bundle.with_extension("btz");
        let arguments = ["pack", bundle.to_str().unwrap(), "-o", packed.to_str().unwrap()];
        let _ = fleet.user().run(&arguments).exited(0);
        let sha256 = std::process::Command::new("sha256sum")
            .arg(&packed)
            .output()
            .unwrap();
        let sha256 = String::from_utf8(sha256.stdout).unwrap()[..64].to_owned();
        let packed = std::fs::read(packed).unwrap();
        let base64 = |text: &str| {
            let mut child = std::process::Command::new("base64")
                .arg("-w0")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        };
        let metadata = [("kind", "bundle"), ("subject", id), ("sha256", &sha256)]
            .map(|(name, value)| format!("{name} {}", base64(value)))
            .join(",");
        let headers = [
            ("Tus-Resumable", "1.0.0"),
            ("Upload-Length", &packed.len().to_string()),
            ("Upload-Metadata", &metadata),
        ];
        let answer = hub
            .request_with("POST", "/api/v1/uploads", Some(token), &headers, b"")
            .unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
        let location = answer.head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("location").then(|| value.to_owned())
        });
        let location = location.unwrap();
        Self {
            path: location[location.find("/api/").unwrap()..].to_owned(),
            packed,
        }
    }

    /// Sends bytes, and returns the status.
    fn send(&self, hub: &HubProcess, token: &str, range: std::ops::Range<usize>) -> u16 {
        let headers = [
            ("Tus-Resumable", "1.0.0"),
            ("Upload-Offset", &range.start.to_string()),
            ("Content-Type", "application/offset+octet-stream"),
        ];
        let answer = hub.request_with("PATCH", &self.path, Some(token), &headers, &self.packed[range]);
        answer.unwrap().status
    }
}

/// Kills a hub while it checks a bundle, and returns the crash.
fn kill_at_work(
    first: &mut HubProcess,
    second: &HubProcess,
    site: &Site,
    token: &str,
    fleet: &mut Fleet,
) -> Vec<String> {
    let mut pushed = Vec::new();
    for _ in 0..8 {
        // The other hub must not take the job.
        kill(second.pid(), Signal::SIGSTOP).unwrap();
        let bundle = fleet.bundle();
        let id = push(fleet.user(), &first.address, token, &bundle);
        first.kill().unwrap();
        kill(second.pid(), Signal::SIGCONT).unwrap();
        pushed.extend(id);
        let last = pushed.last().expect("the push was acknowledged");
        if get(second, token, &format!("/api/v1/crashes/{last}"))["bundle"] == "checking" {
            return pushed;
        }
        *first = site.start();
    }
    panic!("the hub never died at work");
}

fn sites(folder: &Path, bucket: &Bucket, database: &Postgres, receiver: &Receiver) -> [Site; 2] {
    let more = format!("database = \"{}\"\n{}", database.address(), receiver.settings());
    ["first", "second"].map(|name| Site::new(folder, name, bucket.address, &more))
}

#[test]
fn survivor_takes_over_uploads_jobs_and_alerts() {
    let Some(database) = Postgres::start() else { return };
    let (bucket, receiver) = (Bucket::s3s(), Receiver::start());
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = sites(folder.path(), &bucket, &database, &receiver);
    // Both bring the empty database up to date at the same time.
    let (token, _) = std::thread::scope(|scope| {
        let other = scope.spawn(|| two.token(&["read"]));
        (one.token(&["ingest", "read"]), other.join().unwrap())
    });
    let (mut first, mut second) = (one.start(), two.start());
    let mut fleet = Fleet::new();
    let mut ids = Vec::new();

    // Uploads through both at once.
    let bundles: Vec<_> = (0..4).map(|_| fleet.bundle()).collect();
    std::thread::scope(|scope| {
        let (user, token, first, second) = (fleet.user(), &token, &first, &second);
        let pushes: Vec<_> = bundles
            .iter()
            .enumerate()
            .map(|(at, bundle)| {
                let hub = if at % 2 == 0 { first } else { second };
                scope.spawn(move || push(user, &hub.address, token, bundle).unwrap())
            })
            .collect();
        ids.extend(pushes.into_iter().map(|push| push.join().unwrap()));
    });
    until("the group is announced", || {
        (!receiver.alerts().is_empty()).then_some(())
    });

    // The same reports through both count once.
    for digit in ['a', 'b', 'c'] {
        let report = report(digit, &format!("web-{digit}"));
        for hub in [&first, &second] {
            send_report(hub, &token, &report);
        }
    }

    // An upload that the first hub begins, and the second one ends.
    let id: String = std::iter::repeat_n('a', 20).collect();
    let upload = Upload::begin(&first, &token, &mut fleet, &id);
    let half = upload.packed.len() / 2;
    assert_eq!(upload.send(&first, &token, 0..half), 204);
    // A late request at the old offset changes nothing.
    assert_eq!(upload.send(&second, &token, 0..half), 409);
    ids.extend(kill_at_work(&mut first, &second, &one, &token, &mut fleet));
    assert_eq!(upload.send(&second, &token, half..upload.packed.len()), 204);
    ids.push(id);
    check_whole(&second, &token, &ids);

    // The first one runs again, and finds nothing to repeat.
    let mut first = one.start();
    check_whole(&first, &token, &ids);
    let before = index(&first, &token);
    assert_eq!(index(&second, &token), before);
    assert_eq!(first.stop().unwrap(), Some(0));
    assert_eq!(second.stop().unwrap(), Some(0));
    let done = two.done(&["rebuild-index"]);
    assert!(done.contains("0 bundles and 0 lines are damaged"), "{done}");
    let hub = two.start();
    assert_eq!(index(&hub, &token), before);

    // A backup of both, in another database and bucket.
    let backup = folder.path().join("backup");
    let done = two.done(&["backup", backup.to_str().unwrap()]);
    assert!(done.contains("copied "), "{done}");
    let done = two.done(&["gc"]);
    assert!(done.contains("removed 0 reports"), "{done}");
    let (other, bucket) = (Postgres::start().unwrap(), Bucket::s3s());
    let settings = format!("database = \"{}\"", other.address());
    let restored = Site::new(folder.path(), "restored", bucket.address, &settings);
    let done = restored.done(&["restore", backup.to_str().unwrap()]);
    assert!(done.contains("restored "), "{done}");
    let copy = restored.start();
    assert_eq!(index(&copy, &token), before);
    check_whole(&copy, &token, &ids);

    // Each group was announced once.
    let mut announced: Vec<String> = receiver
        .alerts()
        .iter()
        .filter(|alert| alert["event"] == "new")
        .map(|alert| alert["group"]["id"].to_string())
        .collect();
    let count = announced.len();
    announced.sort_unstable();
    announced.dedup();
    assert_eq!(announced.len(), count, "{:?}", receiver.alerts());
    assert!(count >= 1);
}
