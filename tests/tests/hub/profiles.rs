//! The agent and the hub: profiles of a host reach the store once, whatever is killed.

use super::fleet::get;
use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::hub_process::{HubProcess, binary, token, until};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The scopes of all tokens here.
const SCOPES: &[&str] = &["ingest", "admin"];
/// A program whose samples are recognized by its name.
const WORK: &str = "
#include <stdlib.h>
__attribute__((noinline)) long spin(long n) { volatile long s = 0; for (long i = 0; i < n; i++) s += i * i % 7; return s; }
int main(int c, char **v) { return spin(atol(v[1]) * 1000000L) == c; }
";

/// Returns the weights of an exported profile by folded stack.
pub fn folded(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        *sums.entry(stack.to_owned()).or_default() += weight.parse::<u64>().unwrap();
    }
    sums
}

fn build(folder: &Path) -> PathBuf {
    let (program, source) = (folder.join("spinner"), folder.join("spinner.c"));
    std::fs::write(&source, WORK).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-o"]).arg(&program).arg(&source);
    assert!(cc.status().unwrap().success());
    program
}

fn agent(hub: &str, token: &str, spool: &Path, host: &str) -> Child {
    let mut agent = command().unwrap();
    agent
        .args(["profile", "agent", "--interval", "1s", "--host", host])
        .args(["--hub", hub, "--spool"])
        .arg(spool)
        .env("BACKTRAIL_HUB", hub)
        .env("BACKTRAIL_HUB_TOKEN", token)
        .stderr(Stdio::null());
    agent.spawn().unwrap()
}

/// Starts a hub at an address.
fn start(data: &Path, listen: &str) -> HubProcess {
    let mut command = Command::new(binary().unwrap());
    command.args(["--listen", listen, "--data"]).arg(data);
    HubProcess::of_command(&mut command).unwrap()
}

/// Returns the folded stacks of the program, as the hub has them.
fn stored(hub: &HubProcess, token: &str) -> BTreeMap<String, u64> {
    let path = "/api/v1/profiles/merge?format=folded&service=spinner&from=1d";
    let answer = hub.request("GET", path, Some(token), b"").unwrap();
    match answer.status {
        404 => BTreeMap::new(),
        200 => folded(&answer.text()),
        status => panic!("{status}: {}", answer.text()),
    }
}

#[test]
fn killed_agents_and_hubs_lose_no_profile() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    let spool = folder.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for number in 0..6 {
        // An earlier agent left these.
        let file = spool.join(format!("{number:020}.prof"));
        let path = file.to_str().unwrap();
        let record = [
            "profile",
            "record",
            "-o",
            path,
            "--",
            program.to_str().unwrap(),
            "60",
        ];
        let run = backtrail(record).unwrap();
        assert!(file.exists(), "{}", run.stderr);
        let export = backtrail(["profile", "export", path, "--format", "folded"]).unwrap();
        assert_eq!(export.status, Some(0), "{}", export.stderr);
        for (stack, weight) in folded(&export.stdout) {
            *expected.entry(stack).or_default() += weight;
        }
    }
    let expected: u64 = expected.values().sum();
    assert!(expected > 0);
    let data = folder.path().join("hub");
    let token = token(&data, SCOPES).unwrap();
    let mut hub = HubProcess::start(&data, &[]).unwrap();
    let address = hub.address.clone();
    let listen = address.trim_start_matches("http://").to_owned();
    hub.kill().unwrap();
    // The hub is away when the agent starts, and is killed while it takes profiles.
    let mut first = agent(&address, &token, &spool, "a");
    std::thread::sleep(Duration::from_millis(500));
    for pause in [150, 400, 900] {
        let mut hub = start(&data, &listen);
        std::thread::sleep(Duration::from_millis(pause));
        hub.kill().unwrap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let hub = start(&data, &listen);
    let mut second = agent(&address, &token, &spool, "a");
    until("the spool has no old profile", || {
        let left = (0..6).filter(|number| spool.join(format!("{number:020}.prof")).exists());
        (left.count() == 0).then_some(())
    });
    second.kill().unwrap();
    second.wait().unwrap();
    let stored: u64 = stored(&hub, &token).values().sum();
    assert_eq!(stored, expected);
}

#[test]
fn profile_now_is_shown_seconds_after_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    let data = folder.path().join("hub");
    let token = token(&data, SCOPES).unwrap();
    let hub = HubProcess::start(&data, &[]).unwrap();
    let mut agent = agent(&hub.address, &token, &folder.path().join("spool"), "web1");
    let mut work = Command::new(&program).arg("1000000").spawn().unwrap();
    let body = br#"{"host":"web1","seconds":2,"frequency":99}"#;
    let asked = Instant::now();
    let answer = hub
        .request("POST", "/api/v1/profile-requests", Some(&token), body)
        .unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let request = until("the request ends", || {
        let request = get(&hub, &token, &format!("/api/v1/profile-requests/{id}"));
        (!request["ended"].is_null()).then_some(request)
    });
    let took = asked.elapsed();
    let path = format!("/api/v1/profiles/merge?format=folded&service=spinner&labels=request%3D{id}");
    let profile = hub.request("GET", &path, Some(&token), b"").unwrap();
    for child in [&mut agent, &mut work] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(request["problem"], serde_json::Value::Null);
    assert_eq!(profile.status, 200, "{}", profile.text());
    let weight: u64 = folded(&profile.text()).values().sum();
    // The program ran all the time. A busy machine leaves it little of that.
    assert!(weight > 0, "{weight} ns after {took:?}");
    println!("the profile of 2 s was stored after {took:?}");
}
