//! The hub's pages in a headless browser, over crashes of real programs.
//!
//! `tests/web/hub.mjs` has the steps and the expected views. `cargo xtask vscode` installs what
//! drives the browser, and prints the variables that name it. `BACKTRAIL_IMAGES=DIR` saves pictures
//! for the documentation.

use super::{User, login};
use backtrail_tests::backtrail::repository;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::hub_process::{HubProcess, token, until};
use backtrail_tests::programs::{Variant, find};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds in an hour.
const HOUR: u64 = 3_600_000_000;
/// Crashing programs: the service that they stand for, their builds, and the hosts that crashed.
const CRASHES: [(&str, &str, &[&str], usize); 4] = [
    ("ledger", "ledger", &["2026.11.3", "2026.11.4", "2026.11.5"], 9),
    ("lease", "lease-manager", &["41", "42"], 3),
    ("thread_crash", "worker-pool", &["2.7.0"], 1),
    ("inlined", "checkout", &["2026.11.5"], 2),
];
/// Hosts that run each service.
const HOSTS: usize = 40;

/// The browser, Node.js and the folder of its packages, or `None` with a message.
pub fn installed() -> Option<(PathBuf, PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    let browser = programs.find(|program| program.is_file());
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let found = || {
        Some((
            browser?,
            variable("BACKTRAIL_NODE")?,
            variable("BACKTRAIL_VSCODE")?,
        ))
    };
    let found = found();
    if found.is_none() {
        eprintln!(
            "skipped: a browser or what drives it is missing; cargo xtask vscode installs and names them"
        );
    }
    found
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// A hub with crashes, and a person who signs in.
struct Site {
    hub: HubProcess,
    token: String,
    user: User,
    /// The number of reports that were made of others.
    copies: u32,
}

impl Site {
    fn get(&self, path: &str) -> Value {
        let answer = self.hub.request("GET", path, Some(&self.token), b"").unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let answer = self
            .hub
            .request("POST", path, Some(&self.token), body.as_bytes())
            .unwrap();
        assert!(matches!(answer.status, 200 | 204), "{path}: {}", answer.text());
        answer.json()
    }

    /// Pushes a bundle, and returns the id of its crash.
    fn push(&self, bundle: &Bundle, service: &str, build: &str) -> String {
        let path = bundle.path.to_str().unwrap();
        let arguments = ["push", path, "--service", service, "--build", build, "--json"];
        let run = self.user.run(&arguments).exited(0);
        let pushed: Value = serde_json::from_str(&run.stdout).unwrap();
        pushed["id"].as_str().unwrap().to_owned()
    }

    /// Returns a crash after its bundle was checked.
    fn checked(&self, id: &str) -> Value {
        until("the bundle is checked", || {
            let crash = self.get(&format!("/api/v1/crashes/{id}"));
            (!["wanted", "checking"].contains(&crash["bundle"].as_str().unwrap())).then_some(crash)
        })
    }

    /// Returns an id that no other report has.
    fn next_id(&mut self) -> String {
        self.copies += 1;
        format!("{:0>20}", self.copies)
    }

    /// Sends reports of the same stack from other hosts, builds and times.
    fn repeat(&mut self, report: &Value, builds: &[&str], hosts: usize) {
        let mut reports = Vec::new();
        for at in 0..hosts * 6 {
            let mut copy = report.clone();
            let build = builds[at % 5 % builds.len()];
            copy["id"] = self.next_id().into();
            copy["host"] = format!("web-{:02}", at * 7 % hosts + 1).into();
            copy["build"] = build.into();
            copy["time"] = (now() - (at as u64 * at as u64 % 600) * HOUR).into();
            copy["kernel"] = if at % 4 == 0 {
                "6.1.0-44-amd64"
            } else {
                "6.12.9-amd64"
            }
            .into();
            copy["labels"] = json!({ "route": if at % 3 == 0 { "/accounts/close" } else { "/transfer" } });
            reports.push(copy);
        }
        for part in reports.chunks(100) {
            let _ = self.post("/api/v1/reports", &Value::Array(part.to_vec()));
        }
    }

    /// Sends a report without a bundle, and returns its id.
    fn report(&mut self, change: impl FnOnce(&mut Value)) -> String {
        let id = self.next_id();
        let mut report = json!({
            "version": 1, "id": id, "time": now(), "host": "web-17", "service": "ledger", "build": "2026.11.5",
            "executable": "/srv/bank/ledger", "signal": 11, "code": 1, "fault_address": 40, "pid": 811, "tid": 813,
            "bundle_size": 1 << 20, "labels": { "route": "/transfer" },
            "frames": [{"module": "/srv/bank/ledger", "build_id": "a1b2", "offset": 4660}],
        });
        change(&mut report);
        let _ = self.post("/api/v1/reports", &json!([report]));
        id
    }

    /// Begins an upload of a crash that the hub knows, of which `sent` are the first bytes.
    fn upload(&self, id: &str, length: usize, sent: &[u8]) {
        let metadata = format!(
            "kind {},subject {},sha256 {}",
            base64(b"bundle"),
            base64(id.as_bytes()),
            base64(sha256(sent).as_bytes())
        );
        let headers = [
            ("Tus-Resumable", "1.0.0"),
            ("Content-Type", "application/offset+octet-stream"),
            ("Upload-Length", &*length.to_string()),
            ("Upload-Metadata", &*metadata),
        ];
        let answer = self
            .hub
            .request_with("POST", "/api/v1/uploads", Some(&self.token), &headers, sent)
            .unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// Returns the folded bundle of a crash as one file.
    fn packed(&self, bundle: &Bundle) -> Vec<u8> {
        let packed = self.user.home().join("packed.btz");
        let _ = fs::remove_file(&packed);
        let _ = self
            .user
            .run(&[
                "pack",
                bundle.path.to_str().unwrap(),
                "-o",
                packed.to_str().unwrap(),
            ])
            .exited(0);
        fs::read(packed).unwrap()
    }
}

/// Uploads a bundle until a child process of the hub is stopped in the middle of its analysis.
/// Returns the child and the crash.
fn stopped_analysis(site: &mut Site, packed: &[u8]) -> (Pid, String) {
    for _ in 0..20 {
        let id = site.report(|report| report["service"] = "checkout".into());
        site.upload(&id, packed.len(), packed);
        let state = |site: &Site| site.get(&format!("/api/v1/crashes/{id}"))["bundle"].clone();
        while state(site) != "stored" {
            let Some(child) = child_of(site.hub.pid().as_raw().unsigned_abs()) else {
                continue;
            };
            if kill(child, Signal::SIGSTOP).is_ok() && state(site) == "checking" {
                return (child, id);
            }
            let _ = kill(child, Signal::SIGCONT);
        }
    }
    panic!("no child process of the hub was seen");
}

/// Returns a running child of a process.
fn child_of(parent: u32) -> Option<Pid> {
    let wanted = format!("PPid:\t{parent}");
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let is_running = !status.contains("State:\tZ");
        let is_child = status.lines().any(|line| line == wanted);
        (is_running && is_child).then(|| Pid::from_raw(pid))
    })
}

fn output(command: &mut Command, input: &[u8]) -> String {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

fn base64(bytes: &[u8]) -> String {
    output(Command::new("base64").args(["-w", "0"]), bytes)
}

fn sha256(bytes: &[u8]) -> String {
    output(&mut Command::new("sha256sum"), bytes)[..64].to_owned()
}

/// Fills a hub with crashes of all kinds. Returns the addresses of their pages by name.
fn filled(site: &mut Site) -> (Value, Vec<u8>) {
    let mut pages = json!({});
    let mut packed = Vec::new();
    for (program, service, builds, hosts) in CRASHES {
        for host in 1..=HOSTS {
            let since = now() - 30 * 24 * HOUR;
            let running: Vec<Value> = builds
                .iter()
                .enumerate()
                .map(|(at, build)| json!({ "service": service, "build": build, "since": since + at as u64 * 200 * HOUR }))
                .collect();
            let heartbeat = json!({ "version": 1, "host": format!("web-{host:02}"), "collector": "0.9.0", "running": running });
            let _ = site.post("/api/v1/heartbeat", &heartbeat);
        }
        let (bundle, _) = Bundle::recorded(find(program).unwrap(), Variant::Pie, &["--full"]);
        let id = site.push(&bundle, service, builds[builds.len() - 1]);
        let crash = site.checked(&id);
        assert_eq!(crash["bundle"], "stored", "{crash}");
        site.repeat(&crash["report"], builds, hosts);
        pages[program] = format!("/c/{id}").into();
        pages[format!("{program}-group")] = format!("/g/{}", crash["group"].as_str().unwrap()).into();
        packed = site.packed(&bundle);
    }
    (pages, packed)
}

#[test]
fn pages_work_in_a_browser() {
    let Some((browser, node, packages)) = installed() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let all = token(folder.path(), &["ingest", "read", "admin"]).unwrap();
    let reader = token(folder.path(), &["read"]).unwrap();
    let hub = HubProcess::start(folder.path(), &[]).unwrap();
    let user = User::new();
    login(&user, &hub, &all);
    let mut site = Site {
        hub,
        token: all,
        user,
        copies: 0,
    };
    let empty = site.hub.request("GET", "/", Some(&reader), b"").unwrap();
    assert!(empty.text().contains("No crashes yet"), "{}", empty.text());
    let (mut pages, packed) = filled(&mut site);

    // The states of a bundle. A host of `stacks` sends no bundle.
    let stacks = site.report(|report| {
        let _ = report.as_object_mut().unwrap().remove("bundle_size");
        // Texts of others are no HTML.
        report["labels"] = json!({ "<b>bold</b>": "\u{202e}<img src=x onerror=alert(1)>" });
        report["frames"][0]["module"] = "/srv/bank/</script><script>alert(1)</script>".into();
    });
    let wanted = site.report(|report| report["signal"] = 6.into());
    let uploading = site.report(|report| report["signal"] = 7.into());
    site.upload(&uploading, packed.len(), &packed[..packed.len() / 3]);
    let refused = site.report(|report| report["signal"] = 4.into());
    site.upload(&refused, 9, b"no bundle");
    assert_eq!(site.checked(&refused)["bundle"], "refused");
    let (child, checking) = stopped_analysis(&mut site, &packed);
    for (name, id) in [
        ("stacks", stacks),
        ("wanted", wanted),
        ("uploading", uploading),
        ("refused", refused),
        ("checking", checking),
    ] {
        pages[name] = format!("/c/{id}").into();
    }
    fs::write(folder.path().join("pages.json"), pages.to_string()).unwrap();

    let status = Command::new(node)
        .arg(repository().join("tests/web/hub.mjs"))
        .env("BACKTRAIL_VSCODE", packages)
        .env("BACKTRAIL_CHROMIUM", browser)
        .env("BACKTRAIL_PAGES", folder.path().join("pages.json"))
        .env("BACKTRAIL_HUB", &site.hub.address)
        .env("BACKTRAIL_TOKENS", format!("{},{reader}", site.token))
        .env("BACKTRAIL_STOPPED", child.to_string())
        .env("HOME", folder.path())
        .status();
    let _ = kill(child, Signal::SIGCONT);
    assert!(status.unwrap().success(), "see what was printed");
}
