//! The hub's pages of profiles in a headless browser.
//!
//! `tests/web/profiles.mjs` has the steps and the expected views. `cargo xtask vscode` installs the
//! driver of the browser, and prints the variables that name it.

use super::pages::installed;
use backtrail_profile::format::otlp;
use backtrail_profile::{Frame, Profile, Sample, StackId, UnixNanos};
use backtrail_tests::backtrail::repository;
use backtrail_tests::hub_process::{HubProcess, token, token_of_person};
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

#[test]
fn profile_pages_work_in_a_browser() {
    let Some((browser, node, packages)) = installed() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let all = token(folder.path(), &["ingest", "read", "admin"]).unwrap();
    let reader = token_of_person(folder.path(), "reader", &["read"]).unwrap();
    let hub = HubProcess::start(folder.path(), &[]).unwrap();
    let push = |query: &str, body: &[u8]| {
        let path = format!("/api/v1/profiles?{query}");
        let answer = hub.request("POST", &path, Some(&all), body).unwrap();
        assert_eq!(answer.status, 204, "{query}: {}", answer.text());
    };
    // A whole minute of two hours ago.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = Duration::from_secs((now.as_secs() / 60 - 120) * 60);
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

    let minute = Command::new("date")
        .args(["-u", "-d", &format!("@{}", start.as_secs()), "+%Y-%m-%dT%H:%M"])
        .output()
        .unwrap();
    let status = Command::new(node)
        .arg(repository().join("tests/web/profiles.mjs"))
        .env("BACKTRAIL_VSCODE", packages)
        .env("BACKTRAIL_CHROMIUM", browser)
        .env("BACKTRAIL_HUB", &hub.address)
        .env(
            "BACKTRAIL_MINUTE",
            String::from_utf8(minute.stdout).unwrap().trim(),
        )
        .env("BACKTRAIL_TOKENS", format!("{all},{reader}"))
        .env("HOME", folder.path())
        .status();
    assert!(status.unwrap().success(), "see what was printed");
}
