//! The hub's pages of profiles in a headless browser.
//!
//! `tests/web/profiles.mjs` has the steps and the expected views. `cargo xtask vscode` installs the
//! driver of the browser, and prints the variables that name it.

use super::pages::installed;
use super::sql::configuration;
use super::{User, login};
use backtrail_profile::format::otlp;
use backtrail_profile::{Frame, Profile, Sample, StackId, UnixNanos};
use backtrail_tests::backtrail::repository;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::hub_process::{HubProcess, token, token_of_person, until};
use backtrail_tests::programs::{Variant, find};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The weight of a sample in nanoseconds.
const WEIGHT: i64 = 10_000_000;
/// The time between two samples.
const STEP: Duration = Duration::from_millis(20);
/// The samples of a minute.
const COUNT: u64 = 3000;
/// The name of a service, and a function, that would be HTML.
const HOSTILE: [&str; 2] = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
];

/// Returns a profile in OTLP: a sample with the stack that `stack` returns, each 20 ms.
fn profile(start: Duration, count: u64, stack: impl Fn(u64) -> &'static [&'static str]) -> Vec<u8> {
    let mut profile = Profile::default();
    let event = profile
        .event("cpu", "nanoseconds", WEIGHT.unsigned_abs())
        .unwrap();
    let labels = profile.label_set(Vec::new()).unwrap();
    for number in 0..count {
        let mut at = StackId::EMPTY;
        for name in stack(number) {
            let function = profile.function(name).unwrap();
            let frame = Frame::Function { function, line: 0 };
            let frame = profile.frames.intern(frame).unwrap();
            at = profile.stacks.push(at, frame).unwrap();
        }
        let time = start + STEP * u32::try_from(number).unwrap();
        profile.samples.push(Sample {
            event,
            weight: WEIGHT,
            stack: at,
            time: Some(UnixNanos(u64::try_from(time.as_nanos()).unwrap())),
            thread: None,
            cpu: None,
            labels,
        });
    }
    let mut bytes = Vec::new();
    otlp::write(&profile, &mut bytes).unwrap();
    bytes
}

/// The stacks of a shop: every tenth sample waits, and a spike begins the 41st second.
fn shop(number: u64) -> &'static [&'static str] {
    match number {
        2000..=2004 => &["main", "spike"],
        _ if number % 10 == 9 => &["main", "epoll_wait"],
        _ if number.is_multiple_of(3) => &["main", "handle", "parse"],
        _ => &["main", "handle", "render"],
    }
}

/// Returns the folded stacks of a host. The newer build is slower in one function.
fn of_build(host: usize, build: usize) -> String {
    let parse = if build == 2 { 300 } else { 200 };
    let more = 7 * host;
    format!(
        "main;handle;parse {}\nmain;handle;render {}\nmain;log 150\n",
        parse + more,
        500 + 2 * more
    )
}

/// Adds a job, runs it, and returns the address of its page.
fn run_job(hub: &HubProcess, token: &str, job: &Value) -> String {
    let ask = |method: &str, path: &str, body: &[u8]| {
        let answer = hub.request(method, path, Some(token), body).unwrap();
        assert!(answer.status < 300, "{path}: {}", answer.text());
        answer
    };
    let added = ask("POST", "/api/v1/jobs", job.to_string().as_bytes()).json();
    let id = added["id"].as_str().unwrap().to_owned();
    let _ = ask("POST", &format!("/api/v1/jobs/{id}/run"), b"");
    until("the job has run", || {
        let runs = ask("GET", &format!("/api/v1/jobs/{id}/runs"), b"").json();
        let state = runs[0]["state"].as_str()?.to_owned();
        (state != "running").then(|| assert_eq!(state, "done", "{runs}"))
    });
    format!("/jobs/{id}")
}

/// Fills a hub with a crash whose bundle has calls of a profiled function. Returns the crash.
fn crash(hub: &HubProcess, token: &str) -> String {
    let user = User::new();
    login(&user, hub, token);
    let (bundle, _) = Bundle::recorded(find("ledger").unwrap(), Variant::Pie, &["--full"]);
    let arguments = [
        "push",
        bundle.path.to_str().unwrap(),
        "--service",
        "ledger",
        "--json",
    ];
    let pushed: Value = serde_json::from_str(&user.run(&arguments).exited(0).stdout).unwrap();
    let id = pushed["id"].as_str().unwrap().to_owned();
    until("the bundle is stored", || {
        let crash = hub.request("GET", &format!("/api/v1/crashes/{id}"), Some(token), b"");
        let crash = crash.unwrap().json();
        let bundle = crash["bundle"].as_str()?.to_owned();
        assert_ne!(bundle, "refused", "{crash}");
        (bundle == "stored").then_some(())
    });
    id
}

/// Writes a program that answers SQL by a word of the query, with times of a minute. Returns the
/// configuration that names it.
fn sql_engine(folder: &Path, minute: &str) -> PathBuf {
    let write = |name: &str, columns: &[(&str, &str)], rows: &[Value]| {
        let columns = columns
            .iter()
            .map(|(name, kind)| json!({ "name": name, "type": kind }));
        let columns: Vec<Value> = columns.collect();
        let coverage = json!({ "coverage": { "columns": columns, "truncated": false, "rows": 9, "segments": 1, "segments_total": 1 } });
        let rows: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(folder.join(format!("{name}.rows")), rows).unwrap();
        std::fs::write(folder.join(format!("{name}.coverage")), coverage.to_string()).unwrap();
    };
    let point = |number: u64| {
        let time = format!("{minute}:{:02}Z", number / 2 * 10);
        let host = if number.is_multiple_of(2) {
            "<b>web</b>"
        } else {
            "db"
        };
        json!({ "at": time, "host": host, "n": 100 * number })
    };
    let points: Vec<Value> = (0..12).map(point).collect();
    let of_time = [
        ("at", "Timestamp(µs, \"UTC\")"),
        ("host", "Utf8View"),
        ("n", "Int64"),
    ];
    write("series", &of_time, &points);
    let tree = r#"{"name":"all","value":9,"self":0,"children":[{"name":"main","value":9,"self":4,"children":[{"name":"</script><b>","value":5,"self":5,"children":[]}]}]}"#;
    let graph = [("service", "Utf8View"), ("graph", "Utf8")];
    write("graph", &graph, &[json!({ "service": "shop", "graph": tree })]);
    let script = format!(
        "case \"$(cat)\" in\n*'SELECT sleep'*) exec sleep 100 ;;\n*flamegraph*) name=graph ;;\n*) name=series ;;\nesac\n\
         cat {0}/$name.rows\ncat {0}/$name.coverage >&2",
        folder.display()
    );
    configuration(folder, &script, "")
}

#[test]
fn profile_pages_work_in_a_browser() {
    let Some((browser, node, packages)) = installed() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let all = token(folder.path(), &["ingest", "read", "admin"]).unwrap();
    let reader = token_of_person(folder.path(), "reader", &["read"]).unwrap();
    // A whole minute of two hours ago.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = Duration::from_secs((now.as_secs() / 60 - 120) * 60);
    let minute = Command::new("date")
        .args(["-u", "-d", &format!("@{}", start.as_secs()), "+%Y-%m-%dT%H:%M"])
        .output()
        .unwrap();
    let minute = String::from_utf8(minute.stdout).unwrap();
    let minute = minute.trim();
    let engine = tempfile::tempdir().unwrap();
    let config = sql_engine(engine.path(), minute);
    let hub = HubProcess::start(folder.path(), &["--config", config.to_str().unwrap()]).unwrap();
    let push = |query: &str, body: &[u8]| {
        let path = format!("/api/v1/profiles?{query}");
        let answer = hub.request("POST", &path, Some(&all), body).unwrap();
        assert_eq!(answer.status, 204, "{query}: {}", answer.text());
    };
    push("service=shop&host=web1&build=7", &profile(start, COUNT, shop));
    let old = profile(start, 50, |number| {
        if number < 20 {
            &["main", "checksum"]
        } else {
            &["main", "send"]
        }
    });
    push("service=cart&host=web1&build=1", &old);
    let new = profile(start, 50, |number| {
        if number < 20 {
            &["main", "compress"]
        } else {
            &["main", "send"]
        }
    });
    push("service=cart&host=web1&build=2", &new);
    let name: String = HOSTILE[0].bytes().map(|byte| format!("%{byte:02x}")).collect();
    push(
        &format!("service={name}&host=web1"),
        &profile(start, 5, |_| &HOSTILE[1..]),
    );

    push(
        "service=ledger&host=web1",
        &profile(start, 50, |_| &["main", "settle"]),
    );
    let crash = crash(&hub, &all);
    for (build, host) in (1..=2).flat_map(|build| (0..4).map(move |host| (build, host))) {
        push(
            &format!("service=api&host=api{host}&build={build}"),
            of_build(host, build).as_bytes(),
        );
    }
    let jobs = [
        run_job(
            &hub,
            &all,
            &json!({
                "name": "rendering of the shop", "schedule": "hourly", "metrics": true,
                "query": { "kind": "top", "selection": { "service": "shop", "from": "1d" }, "rows": 5 },
                "threshold": { "column": "share", "comparison": ">=", "value": 0.5 },
            }),
        ),
        run_job(
            &hub,
            &all,
            &json!({
                "name": "slower functions of <b>api</b>", "schedule": "every 5m",
                "query": { "kind": "regression", "compare": { "service": "api", "event": "samples", "before": "1", "after": "2" } },
            }),
        ),
    ];

    let status = Command::new(node)
        .arg(repository().join("tests/web/profiles.mjs"))
        .env("BACKTRAIL_VSCODE", packages)
        .env("BACKTRAIL_CHROMIUM", browser)
        .env("BACKTRAIL_HUB", &hub.address)
        .env("BACKTRAIL_MINUTE", minute)
        .env("BACKTRAIL_TOKENS", format!("{all},{reader}"))
        .env("BACKTRAIL_CRASH", crash)
        .env("BACKTRAIL_JOBS", jobs.join(","))
        .env("HOME", folder.path())
        .status();
    assert!(status.unwrap().success(), "see what was printed");
}
