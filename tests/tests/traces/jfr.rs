//! Recordings of the JDK Flight Recorder (JFR): reports and exports of them, and the samples that
//! the JDK and async-profiler list.

mod listing;

use backtrail_profile::format::{self, folded};
use backtrail_profile::{EventId, FunctionProfile, Profile};
use backtrail_tests::backtrail::{Run, backtrail, repository};
use backtrail_tests::jfr;
use listing::{Listing, without_address};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The length of a run in milliseconds.
const RUN: &str = "2000";

fn run(arguments: &[&str], file: &Path) -> Run {
    let file = file.to_str().unwrap();
    let arguments = arguments.iter().map(|argument| match *argument {
        "FILE" => file,
        argument => argument,
    });
    backtrail(["profile"].into_iter().chain(arguments)).unwrap()
}

fn json(arguments: &[&str], file: &Path) -> Value {
    let run = run(arguments, file).exited(0);
    assert_eq!(run.stderr, "");
    serde_json::from_str(&run.stdout).unwrap()
}

fn written(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.jfr");
    std::fs::write(&file, bytes).unwrap();
    (folder, file)
}

#[test]
fn recording_is_reported_exported_and_compared() {
    let (_folder, file) = written(&jfr::recording());
    // Without a choice, a report shows processor time.
    let report = json(&["report", "FILE", "--json"], &file);
    assert_eq!(
        (&report["event"], &report["unit"]),
        (&"cpu".into(), &"nanoseconds".into())
    );
    assert_eq!(
        report["functions"],
        serde_json::json!([
            {"name": "com.example.Server.work", "own": 8_000_000, "total": 8_000_000},
            {"name": "com.example.Server.main", "own": 0, "total": 8_000_000},
        ])
    );
    for (selection, total) in [
        (&["--event", "wall"][..], 200_000_000),
        (&["--event", "wall", "--label", "state=SLEEPING"], 200_000_000),
        (&["--event", "wall", "--label", "state=RUNNABLE"], 0),
        (&["--event", "wall", "--focus", "__poll"], 200_000_000),
        (&["--event", "alloc", "--label", r"class=byte\[\]"], 8 * 4096),
        (&["--event", "lock", "--thread", "4712"], 1_000_000),
        (&["--event", "cpu", "--thread", "Server"], 8_000_000),
        (&["--event", "cpu", "--thread", "nothing"], 0),
    ] {
        let arguments = [&["report", "FILE", "--json"], selection].concat();
        assert_eq!(json(&arguments, &file)["total"], total, "{selection:?}");
    }
    let export = ["export", "FILE", "--format", "folded", "--event", "wall"];
    assert_eq!(
        run(&export, &file).exited(0).stdout,
        "com.example.Server.main;__poll 200000000\n"
    );
    let diff = json(&["diff", "FILE", "FILE", "--json"], &file);
    assert_eq!(
        (&diff["before"], &diff["after"]),
        (&diff["after"], &diff["before"])
    );
}

#[test]
fn cut_recording_is_used_with_notes() {
    let whole = jfr::recording();
    let (_folder, file) = written(&whole[..whole.len() - 100]);
    let report = json(&["report", "FILE", "--json"], &file);
    assert_eq!(report["total"], 8_000_000);
    let notes = report["notes"].as_array().unwrap();
    assert!(
        notes[0]
            .as_str()
            .unwrap()
            .starts_with("chunk 2 is damaged or cut at byte"),
        "{notes:?}"
    );
    let (_folder, file) = written(&whole[..68]);
    let run = run(&["report", "FILE"], &file).exited(3);
    assert!(
        run.sentence()
            .contains("JFR: the recording cannot be read: chunk 1 at byte 0x0"),
        "{}",
        run.stderr
    );
}

/// The Java program, compiled. `None`: there is no JDK.
fn compiled() -> Option<TempDir> {
    let is_there = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !["java", "javac", "jfr"].into_iter().all(is_there) {
        eprintln!("skipped: no JDK on this machine (apt-get install default-jdk-headless)");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let sources = repository().join("tests/fixtures/jfr");
    let mut compiler = Command::new("javac");
    compiler.arg("-d").arg(folder.path());
    for source in ["Work.java", "one/profiler/AsyncProfiler.java"] {
        compiler.arg(sources.join(source));
    }
    assert!(compiler.status().unwrap().success());
    Some(folder)
}

/// The library of async-profiler, and the compiled program. `None`: one is missing.
fn async_profiler() -> Option<(String, TempDir)> {
    let Ok(library) = std::env::var("BACKTRAIL_ASYNC_PROFILER") else {
        eprintln!("skipped: no async-profiler; BACKTRAIL_ASYNC_PROFILER names libasyncProfiler.so");
        return None;
    };
    Some((library, compiled()?))
}

fn java(folder: &Path, arguments: &[&str]) {
    let mut java = Command::new("java");
    let run = java.arg("-cp").arg(folder).args(arguments).output().unwrap();
    assert!(run.status.success(), "{run:?}");
}

/// Compares each sample of a recording with the listing of the JDK, and the hottest function of
/// each event.
fn compare(file: &Path, interval: i64) -> Listing {
    let listing = Listing::of(file, interval);
    let profile = format::read(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(profile.notes, [""; 0]);
    listing.compare(&profile);
    for (event, functions) in listing.own_weights() {
        let (name, own) = functions.iter().max_by_key(|(_, own)| **own).unwrap();
        let report = json(&["report", "FILE", "--event", &event, "--json"], file);
        let first = &report["functions"][0];
        assert_eq!(
            (&first["name"], &first["own"]),
            (&(&**name).into(), &(*own).into()),
            "{event}"
        );
    }
    listing
}

#[test]
#[ignore = "runs Java: cargo xtask test-all"]
fn jvm_recording_has_the_samples_that_the_jdk_lists() {
    let Some(folder) = compiled() else { return };
    let file = folder.path().join("jvm.jfr");
    // Events that the profile's settings leave out.
    let events = "jdk.ObjectAllocationInNewTLAB#enabled=true,jdk.ObjectAllocationOutsideTLAB#enabled=true,\
                  jdk.JavaMonitorEnter#threshold=0ms,jdk.ThreadPark#threshold=0ms";
    let option = format!(
        "-XX:StartFlightRecording=filename={},settings=profile,{events}",
        file.display()
    );
    java(folder.path(), &[&option, "Work", RUN]);
    let listing = compare(&file, 1);
    for event in ["samples", "alloc", "alloc-tlab", "lock", "park"] {
        assert!(listing.count(event) > 0, "{event}");
    }
}

#[test]
#[ignore = "runs Java: cargo xtask test-all"]
fn async_profiler_recordings_have_the_listed_samples() {
    let Some((library, folder)) = async_profiler() else {
        return;
    };
    let file = folder.path().join("async.jfr");
    for (options, interval, events) in [
        ("event=cpu,interval=1ms", 1_000_000, &["cpu"][..]),
        ("event=itimer", 10_000_000, &["cpu"]),
        ("event=wall,interval=7ms", 7_000_000, &["wall"]),
        ("event=wall", 50_000_000, &["wall"]),
        // A chunk a second.
        (
            "event=cpu,interval=2ms,alloc=100k,lock=1us,chunktime=1",
            2_000_000,
            &["cpu", "alloc", "lock"],
        ),
        ("event=page-faults,interval=10", 10, &["page-faults"]),
    ] {
        let agent = format!("-agentpath:{library}=start,jfr,{options},file={}", file.display());
        java(folder.path(), &[&agent, "Work", RUN]);
        let listing = compare(&file, interval);
        for event in events {
            assert!(listing.count(event) > 0, "{event} of {options}");
        }
    }
}

/// Returns the weights of folded stacks. Functions of C have no parameters in a recording, and
/// marks as `[unknown]` have no brackets.
fn folded_weights(profile: &Profile, event: EventId, unit: i64) -> BTreeMap<String, i64> {
    let functions = FunctionProfile::new(profile).unwrap();
    let mut text = Vec::new();
    folded::write(&functions, event, &mut text).unwrap();
    let mut weights = BTreeMap::new();
    for line in String::from_utf8(text).unwrap().lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let name = |name: &str| {
            let name = name.split('(').next().unwrap_or_default();
            let name = name.trim_matches(['[', ']']).replace('/', ".");
            let (class, method) = name.rsplit_once('.').unwrap_or(("", &name));
            format!("{}.{method}", without_address(class))
        };
        let stack: Vec<_> = stack.split(';').map(name).collect();
        *weights.entry(stack.join(";")).or_default() += weight.parse::<i64>().unwrap() / unit;
    }
    weights
}

#[test]
#[ignore = "runs Java: cargo xtask test-all"]
fn async_profilers_folded_stacks_are_those_of_its_recording() {
    let Some((library, folder)) = async_profiler() else {
        return;
    };
    let name = folder.path().join("both");
    let options = "event=cpu,interval=1ms";
    let arguments = [
        "one.profiler.AsyncProfiler",
        &library,
        name.to_str().unwrap(),
        options,
        RUN,
    ];
    java(folder.path(), &arguments);
    let read = |extension| format::read(&std::fs::read(name.with_extension(extension)).unwrap()).unwrap();
    let (recording, theirs) = (read("jfr"), read("folded"));
    let event = |profile: &Profile| profile.events.iter().last().unwrap().0;
    let ours = folded_weights(&recording, event(&recording), 1_000_000);
    let theirs = folded_weights(&theirs, event(&theirs), 1);
    // The recording ends some samples after the folded stacks were written.
    let later = |(stack, weight): (&String, &i64)| weight - theirs.get(stack).unwrap_or(&0);
    let later: Vec<i64> = ours.iter().map(later).collect();
    assert!(later.iter().all(|weight| *weight >= 0), "{ours:#?}\n{theirs:#?}");
    let missing: Vec<_> = theirs.keys().filter(|stack| !ours.contains_key(*stack)).collect();
    assert_eq!(missing, [""; 0]);
    assert!(
        later.iter().sum::<i64>() <= 20 && ours.values().sum::<i64>() > 500,
        "{later:?}"
    );
}
