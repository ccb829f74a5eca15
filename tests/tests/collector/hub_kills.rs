//! The collector's sender and a real hub, both killed at random moments.

use crate::collector::{Collector, cannot};
use backtrail_tests::built;
use backtrail_tests::hub_process::{HubProcess, binary, token, until};
use backtrail_tests::programs::Variant;
use backtrail_tests::random::Random;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Starts a hub at a port.
fn start(data: &Path, port: u16) -> HubProcess {
    let mut command = Command::new(binary().unwrap());
    command
        .arg("--data")
        .arg(data)
        .args(["--listen", &format!("127.0.0.1:{port}")]);
    HubProcess::of_command(&mut command).unwrap()
}

/// Kills the sender of a collector, if one runs.
fn kill_sender(collector: &Collector) {
    for pid in super::hub::senders(collector) {
        // The sender may have ended in between.
        let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL);
    }
}

/// Lets programs crash while sender and hub are killed at random moments.
fn kill_during(crashes: usize, kills: usize, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), &["ingest", "read"]).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut hub = start(folder.path(), port);
    let mut collector = Collector::new("");
    // The sender is another user, and must reach the spool.
    fs::set_permissions(collector.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = collector.folder().join("token");
    fs::write(&file, format!("{token}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let settings =
        format!("[hub]\nurl = \"http://127.0.0.1:{port}\"\ntoken_file = {file:?}\nbuild = \"1.0\"\n");
    collector.configure(&settings);
    collector.start();
    let mut random = Random::new(seed);
    for at in 0..crashes {
        let program = built("crash_null", Variant::Pie).unwrap();
        let _ = collector.crash(&mut Command::new(program));
        if at < kills {
            std::thread::sleep(Duration::from_millis(random.below(1200) as u64));
            if random.once_in(2) {
                kill_sender(&collector);
            } else {
                hub.kill().unwrap();
                hub = start(folder.path(), port);
            }
        }
    }
    until("the crashes are sent and checked", || {
        let is_sent = collector.list().iter().all(|crash| crash["sent"] == true);
        let answer = hub
            .request("GET", "/api/v1/crashes?limit=200", Some(&token), b"")
            .unwrap();
        let listed = answer.json();
        let is_checked = |crash: &Value| crash["bundle"] != "checking";
        (is_sent && listed.as_array().unwrap().iter().all(is_checked)).then_some(())
    });
    let answer = hub.request("GET", "/api/v1/groups", Some(&token), b"").unwrap();
    let groups = answer.json();
    let counted: i64 = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|group| group["service"] == "crash_null")
        .map(|group| group["reports"].as_i64().unwrap())
        .sum();
    assert_eq!(counted, crashes as i64, "{groups}\n{}", collector.log());
    let bundles: i64 = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["bundles"].as_i64().unwrap())
        .sum();
    assert!(bundles >= 1, "{groups}");
    collector.stop();
}

#[test]
fn killed_sender_and_hub_lose_no_crash() {
    if cannot() {
        return;
    }
    kill_during(3, 3, 7);
}

#[test]
#[ignore = "takes minutes: 20 crashes"]
fn killed_sender_and_hub_lose_none_of_20_crashes() {
    if cannot() {
        return;
    }
    kill_during(20, 8, 8);
}
