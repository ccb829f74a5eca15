//! The collector's sender: crashes of the spool reach a hub once, over outages and restarts.

use crate::collector::{Collector, cannot, until};
use backtrail_tests::built;
use backtrail_tests::hub_server::{Fault, HubServer, HubState, TOKEN};
use backtrail_tests::programs::Variant;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Returns the configuration of a hub, whose token only root can read.
fn settings(collector: &Collector, hub: &HubServer, more: &str) -> String {
    let token = collector.folder().join("token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    format!("[hub]\nurl = {:?}\ntoken_file = {token:?}\n{more}\n", hub.address)
}

/// Starts a collector that sends to a hub.
fn sending(hub: &HubServer, more: &str) -> Collector {
    let mut collector = Collector::new("");
    // The sender is another user, and must reach the spool.
    fs::set_permissions(collector.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    collector.configure(&settings(&collector, hub, more));
    collector.start();
    collector
}

fn crash(collector: &Collector) -> Value {
    collector.crash(&mut Command::new(built("crash_null", Variant::Pie).unwrap()))
}

/// Returns the report of a crash. Programs of other tests may crash at the same time.
#[track_caller]
fn report_of<'a>(state: &'a HubState, crash: &Value) -> &'a Value {
    let found = state
        .reports
        .values()
        .find(|report| report["pid"] == crash["pid"]);
    found.unwrap_or_else(|| panic!("no report of {crash}: {:?}", state.requests))
}

/// Returns whether the hub has the bundle of a crash.
fn has_bundle(state: &HubState, crash: &Value) -> bool {
    let id = report_of(state, crash)["id"].as_str().unwrap();
    state.bundles.contains_key(id)
}

/// Waits until all crashes of the spool are marked as sent.
#[track_caller]
fn until_sent(collector: &Collector) {
    until("the crashes are sent", || {
        collector.list().iter().all(|crash| crash["sent"] == true)
    });
}

/// Returns the process ids of the sender of a collector.
pub fn senders(collector: &Collector) -> Vec<u32> {
    let parent = format!("PPid:\t{}\n", collector.pid());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        read("cmdline").contains("collect-sender") && read("status").contains(&parent)
    })
    .collect()
}

#[test]
fn crash_reaches_the_hub_once() {
    if cannot() {
        return;
    }
    let hub = HubServer::start().unwrap();
    let mut collector = sending(&hub, "build = \"2026.11.3\"");
    let listed = crash(&collector);
    until_sent(&collector);
    {
        let state = hub.state();
        assert!(has_bundle(&state, &listed), "{}", collector.log());
        let report = report_of(&state, &listed);
        assert_eq!(
            (&report["pid"], &report["build"]),
            (&listed["pid"], &"2026.11.3".into())
        );
        assert!(!report["frames"].as_array().unwrap().is_empty());
    }
    // The sender has no privileges, and the daemon no connection.
    let [sender] = senders(&collector)[..] else {
        panic!("there is not one sender: {}", collector.log());
    };
    let status = fs::read_to_string(format!("/proc/{sender}/status")).unwrap();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert!(!field("Uid:").split('\t').any(|id| id == "0"), "{status}");
    assert_eq!(
        (field("CapPrm:").as_str(), field("NoNewPrivs:").as_str()),
        ("0000000000000000", "1")
    );
    assert_eq!(field("Seccomp:"), "2");
    collector.stop();
    until("the sender ends", || {
        !fs::exists(format!("/proc/{sender}")).unwrap()
    });
    collector.start();
    let second = crash(&collector);
    until_sent(&collector);
    assert_ne!(listed["id"], second["id"]);
    let state = hub.state();
    assert_eq!(
        (state.reports.len(), state.received),
        (2, 2),
        "nothing is sent twice"
    );
}

#[test]
fn crashes_wait_for_a_hub_that_is_down() {
    if cannot() {
        return;
    }
    let hub = HubServer::start().unwrap();
    hub.state().is_down = true;
    let mut collector = sending(&hub, "");
    let crashes = [0; 3].map(|_| crash(&collector));
    until("the hub is tried", || !hub.state().requests.is_empty());
    // A restart during the outage loses nothing.
    collector.stop();
    collector.start();
    assert!(collector.list().iter().all(|crash| crash["sent"] == false));
    hub.state().faults = [
        Fault::LostAnswer,
        Fault::None,
        Fault::None,
        Fault::Cut(5000),
        Fault::Status(500, ""),
    ]
    .into();
    hub.state().is_down = false;
    until_sent(&collector);
    let state = hub.state();
    assert!(
        crashes.iter().all(|crash| has_bundle(&state, crash)),
        "{}",
        collector.log()
    );
    assert!(state.faults.is_empty());
}

#[test]
fn killed_sender_starts_again() {
    if cannot() {
        return;
    }
    let hub = HubServer::start().unwrap();
    let collector = sending(&hub, "");
    until("the sender runs", || senders(&collector).len() == 1);
    let first = senders(&collector)[0];
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(first as i32),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    until(
        "another sender runs",
        || matches!(senders(&collector)[..], [sender] if sender != first),
    );
    let crash = crash(&collector);
    until_sent(&collector);
    assert!(has_bundle(&hub.state(), &crash));
}

#[test]
fn stacks_alone_are_sent_if_so_configured() {
    if cannot() {
        return;
    }
    let hub = HubServer::start().unwrap();
    let collector = sending(&hub, "send = \"stacks\"\nservice = \"ledger\"");
    let crash = crash(&collector);
    until_sent(&collector);
    let state = hub.state();
    let report = report_of(&state, &crash);
    assert_eq!(
        (report["bundle_size"].is_null(), &report["service"]),
        (true, &"ledger".into())
    );
    assert!(state.bundles.is_empty());
}

#[test]
fn reload_applies_a_hub_and_heartbeats_come() {
    if cannot() {
        return;
    }
    let hub = HubServer::start().unwrap();
    let mut collector = Collector::new("");
    fs::set_permissions(collector.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    collector.start();
    crash(&collector);
    assert!(senders(&collector).is_empty());
    collector.configure(&settings(&collector, &hub, ""));
    collector.signal(nix::sys::signal::Signal::SIGHUP);
    until("a heartbeat comes", || !hub.state().heartbeats.is_empty());
    let later = crash(&collector);
    until("the later crash is sent", || {
        let mut listed = collector.list().into_iter();
        listed.any(|crash| crash["id"] == later["id"] && crash["sent"] == true)
    });
    let heartbeat = hub.state().heartbeats[0].clone();
    assert_eq!(heartbeat["version"], 1);
    assert!(!heartbeat["host"].as_str().unwrap().is_empty() && heartbeat["running"].is_array());
}
