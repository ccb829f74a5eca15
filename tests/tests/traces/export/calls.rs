//! A recording as a profile: counts of calls, and the slowest and a typical call of a function.

use super::{is_call, on, recording};
use backtrail_tests::backtrail::{Run, backtrail};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

#[track_caller]
fn profile(command: &str, bundle: &Path, rest: &[&str]) -> Run {
    let mut arguments = vec!["profile", command, bundle.to_str().unwrap()];
    arguments.extend(rest);
    backtrail(arguments).unwrap()
}

#[track_caller]
fn json(run: Run) -> Value {
    let run = run.exited(0);
    assert_eq!(run.stderr, "");
    serde_json::from_str(&run.stdout).unwrap()
}

/// Returns the calls of each function that has a symbol, and of all others.
fn counts<'a>(calls: impl Iterator<Item = (&'a str, i64)>) -> BTreeMap<&'a str, i64> {
    let mut counts = BTreeMap::new();
    for (name, count) in calls.filter(|(name, count)| is_call(name) && *count > 0) {
        // Without a symbol, a name is an address, or a place in a file.
        let name = if name.contains("0x") { "" } else { name };
        *counts.entry(name).or_default() += count;
    }
    counts
}

#[test]
fn report_of_a_bundle_counts_its_calls() {
    let recording = recording();
    let rest = ["--event", "calls", "--limit", "1000000", "--json"];
    let report = json(profile("report", &recording.bundle.path, &rest));
    let rows = report["functions"].as_array().unwrap().iter();
    let found = counts(rows.map(|row| (row["name"].as_str().unwrap(), row["own"].as_i64().unwrap())));
    let calls = recording.calls.values().flatten();
    assert_eq!(found, counts(calls.map(|(_, name)| (name.as_str(), 1))));

    let rest = ["--event", "instructions", "--json"];
    let report = json(profile("report", &recording.bundle.path, &rest));
    assert_eq!(report["total"].as_u64(), Some(recording.instructions));
    // The event that is shown by itself is the time.
    let report = json(profile("report", &recording.bundle.path, &["--json"]));
    assert_eq!(
        (&report["event"], &report["unit"]),
        (&"time".into(), &"nanoseconds".into())
    );
    // The first thread has the number of the process.
    let tid = recording.calls.keys().last().unwrap().to_string();
    let rest = ["--thread", &tid, "--event", "instructions", "--json"];
    let one = json(profile("report", &recording.bundle.path, &rest));
    assert!((1..recording.instructions).contains(&one["total"].as_u64().unwrap()));
}

#[test]
fn bundle_is_compared_and_exported_as_a_profile() {
    let bundle = &recording().bundle.path;
    let run = profile("diff", bundle, &[bundle.to_str().unwrap(), "--json"]);
    assert_eq!(json(run)["functions"].as_array().unwrap().len(), 0);
    let folded = profile("export", bundle, &["--format", "folded", "--event", "calls"]).exited(0);
    let weights = folded.stdout.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    let sum: usize = weights.map(|weight| weight.parse::<usize>().unwrap()).sum();
    let pauses = folded.stdout.lines().filter(|line| line.contains(";["));
    let pauses: usize = pauses
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap())
        .sum();
    assert_eq!(sum - pauses, recording().positions.len());
    let data = json(profile("export", bundle, &["--format", "html-data"]));
    let command = data["calls"]["command"].as_str().unwrap();
    assert!(command.starts_with("backtrail debug /"), "{command}");
    assert!(command.ends_with(" --at "), "{command}");
}

/// A call, as the debugger's `slowest` lists it.
struct Call {
    bounds: u64,
    instructions: u64,
    position: String,
}

/// Returns the calls of a function with a known length, the shortest first.
#[track_caller]
fn calls_of(bundle: &Path, function: &str) -> Vec<Call> {
    let run = on(bundle, "latency", &[function, "--slowest", "1000000", "--json"]);
    let slowest: Value = serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    let calls = slowest["slowest"].as_array().unwrap().iter();
    let mut calls: Vec<Call> = calls
        .map(|call| Call {
            bounds: call["length"][0].as_u64().unwrap() + call["length"][1].as_u64().unwrap(),
            instructions: call["instructions"].as_u64().unwrap(),
            position: call["position"].as_str().unwrap().to_owned(),
        })
        .collect();
    calls.sort_by_key(|call| (call.bounds, call.instructions));
    calls
}

#[test]
fn slowest_and_median_call_are_opened_in_the_debugger() {
    let bundle = &recording().bundle.path;
    let calls = calls_of(bundle, "work");
    assert!(calls.len() > 3, "{}", calls.len());
    let report = json(profile("report", bundle, &["--calls", "work", "--json"]));
    assert_eq!(report["schema"], "backtrail-profile-calls/1");
    assert_eq!(report["measured"].as_u64(), Some(calls.len() as u64));
    let expected = [
        ("slowest", calls.len() - 1),
        ("typical", calls.len().div_ceil(2) - 1),
    ];
    for (kind, at) in expected {
        let found = &report[kind];
        let position = found["position"].as_str().unwrap();
        let call = calls.iter().find(|call| call.position == position).unwrap();
        let wanted = &calls[at];
        assert_eq!(
            (call.bounds, call.instructions),
            (wanted.bounds, wanted.instructions)
        );
        assert_eq!(found["instructions"].as_u64(), Some(wanted.instructions));
        // The command that a user copies opens the call.
        let command = found["command"].as_str().unwrap();
        let words = command.replace('\'', "");
        let words: Vec<&str> = words.split(' ').collect();
        assert_eq!(words[..2], ["backtrail", "debug"]);
        let run = backtrail(words[1..].iter().copied().chain(["--batch", "-e", "backtrace"])).unwrap();
        let run = run.exited(0);
        assert!(run.stdout.contains("\n#0  work ("), "{}", run.stdout);
        assert!(run.stdout.contains(&format!("[{position}")), "{}", run.stdout);
    }
    let text = profile("report", bundle, &["--calls", "work"]).exited(0).stdout;
    assert!(
        text.contains("\nslowest  ") && text.contains("\ntypical  "),
        "{text}"
    );
    assert!(text.contains("typical is the median"), "{text}");
}

#[test]
fn calls_without_an_end_are_left_out_and_counted() {
    let (bundle, _) = Bundle::recorded(find("ledger").unwrap(), Variant::Pie, &["--full"]);
    let report = json(profile("report", &bundle.path, &["--calls", "main", "--json"]));
    assert_eq!((&report["calls"], &report["measured"]), (&1.into(), &0.into()));
    assert_eq!(report["left_out"], serde_json::json!({"not_ended": 1}));
    assert_eq!(
        (&report["slowest"], &report["typical"]),
        (&Value::Null, &Value::Null)
    );
    let text = profile("report", &bundle.path, &["--calls", "main"])
        .exited(0)
        .stdout;
    assert!(
        text.contains("left out: 1 that had not returned when history ended"),
        "{text}"
    );
    let run = profile("report", &bundle.path, &["--calls", "no such function"]);
    assert_eq!(run.status, Some(1));
    assert!(
        run.stderr.contains("has no function no such function"),
        "{}",
        run.stderr
    );
}

#[test]
fn samples_have_no_calls_to_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("folded");
    std::fs::write(&file, "main;work 3\n").unwrap();
    let run = profile("report", &file, &["--calls", "work"]);
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("has samples and no calls"), "{}", run.stderr);
}
