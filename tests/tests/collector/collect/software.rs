//! Services under `backtrail record --daemon`: their crashes are in the collector's spool, with
//! history.

use crate::collector::{Collector, cannot, until};
use backtrail_process::status::{Disposition, disposition};
use backtrail_tests::backtrail::{Run, backtrail, command};
use backtrail_tests::built;
use backtrail_tests::programs::Variant;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// Only the probe reports crashes: `core_pattern` is unchanged.
const PROBE_ALONE: &str = "[crash]\nhold = \"none\"\n";
/// A bit longer than the time after which the daemon saves a crash that no recorder has claimed.
const UNASKED: Duration = Duration::from_secs(4);

fn example(name: &str) -> PathBuf {
    built(name, Variant::Pie).unwrap()
}

/// Returns `backtrail record --daemon` with the collector's configuration and more arguments.
fn service(collector: &Collector, arguments: &[&str]) -> Command {
    let mut command = command().unwrap();
    command
        .args(["record", "--daemon", "--config"])
        .arg(collector.config())
        .args(arguments);
    command
}

fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Checks that the bundle is complete and has the history before the crash.
#[track_caller]
fn has_history(collector: &Collector, crash: &Value) {
    assert_eq!(crash["complete"], true, "{crash}");
    assert!(crash["history_bytes"].as_u64().unwrap() > 0, "{crash}");
    assert_eq!(
        crash["crash_to_stop_us"],
        Value::Null,
        "nothing was measured: {crash}"
    );
    let back = collector.debug(crash, &["reverse-step", "reverse-step", "backtrace 5"]);
    assert!(back.contains("descend"), "{back}");
    let bundle = crash["bundle"].as_str().unwrap();
    let checked = backtrail(["check", bundle]).unwrap().exited(0);
    assert!(checked.stdout.contains("no faults"), "{checked:?}");
}

/// The recorder and the daemon see the same crash, and one of them saves it.
fn one_bundle_of_a_crash(settings: &str) {
    let collector = Collector::started(settings);
    let ran = run(service(&collector, &["--"]).arg(example("crash_null"))).exited(128 + 11);
    assert_eq!(ran.stdout, "");
    assert!(ran.sentence().contains("SIGSEGV ended process"), "{ran:?}");
    let listed = collector.list();
    let [crash] = listed.as_slice() else {
        panic!("not one bundle: {listed:?}\n{}", collector.log());
    };
    has_history(&collector, crash);
    let told_after = crash["crash_to_reader_us"].as_f64();
    assert!(told_after.is_some_and(|time| time > 0.0), "{crash}");
    assert!(
        crash["executable"].as_str().unwrap().contains("crash_null"),
        "{crash}"
    );
    std::thread::sleep(UNASKED);
    assert_eq!(collector.list().len(), 1, "{}", collector.log());
    assert_eq!(
        collector.metric("bundles_written_total"),
        0.0,
        "the daemon left it alone"
    );
}

#[test]
fn a_crash_of_a_service_has_history_and_is_saved_once() {
    if !cannot() {
        one_bundle_of_a_crash(PROBE_ALONE);
    }
}

#[test]
fn core_handler_leaves_a_service_to_its_recorder() {
    if !cannot() {
        one_bundle_of_a_crash("");
    }
}

#[test]
fn service_that_exits_writes_no_bundle() {
    if cannot() {
        return;
    }
    let collector = Collector::started(PROBE_ALONE);
    let ran = run(&mut service(
        &collector,
        &["--", "sh", "-c", "echo all is well; exit 3"],
    ))
    .exited(3);
    assert_eq!((&*ran.stdout, &*ran.stderr), ("all is well\n", ""));
    assert_eq!(collector.list(), Vec::<Value>::new());
    let left = std::fs::read_dir(collector.spool()).unwrap().flatten();
    let names: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().starts_with(".backtrail-")),
        "{names:?}"
    );
}

#[test]
fn each_crashing_worker_is_saved_while_the_service_runs() {
    if cannot() {
        return;
    }
    let collector = Collector::started(PROBE_ALONE);
    let worker = example("crash_null");
    let script = "\"$0\"; \"$0\"; true; \"$0\"; echo still here; exit 4";
    let ran = run(service(&collector, &["--", "sh", "-c", script]).arg(&worker)).exited(4);
    assert!(ran.stdout.contains("still here"), "{ran:?}");
    let listed = collector.list();
    assert_eq!(listed.len(), 3, "{listed:?}");
    for crash in &listed {
        has_history(&collector, crash);
        let info = backtrail(["info", "--json", crash["bundle"].as_str().unwrap()]).unwrap();
        let info: Value = serde_json::from_str(&info.exited(0).stdout).unwrap();
        let modules = info["modules"].as_array().unwrap();
        assert!(
            !modules.is_empty() && modules.iter().all(|module| module["pid"] == crash["pid"]),
            "the bundle is that of one process: {info}"
        );
    }
}

/// Reads the program's lines until one says that it is ready.
fn ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
}

fn read(stderr: Option<ChildStderr>) -> String {
    std::io::read_to_string(stderr.unwrap()).unwrap()
}

/// Waits for the end, within the tests' limit.
fn ended(child: &mut Child) -> Option<i32> {
    let mut status = None;
    until("the recorder ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code()
}

/// Returns whether this process ignores a signal, such as after nohup(1). The recorder and its
/// program then ignore the signal too.
fn is_ignored(signal: Signal) -> bool {
    disposition(nix::unistd::getpid().as_raw(), signal as i32) == Disposition::Ignored
}

#[test]
fn signals_to_the_recorder_reach_the_service() {
    if cannot() {
        return;
    }
    let collector = Collector::started(PROBE_ALONE);
    let waits = "echo ready; while :; do sleep 0.05; done";
    let handles = format!("trap 'exit 5' TERM; trap 'exit 6' USR1; trap 'exit 7' HUP; {waits}");
    for (script, signal, status) in [
        (&*handles, Signal::SIGTERM, 5),
        (&*handles, Signal::SIGUSR1, 6),
        (&*handles, Signal::SIGHUP, 7),
        (waits, Signal::SIGTERM, 128 + 15),
    ] {
        if is_ignored(signal) {
            continue;
        }
        let mut child = service(&collector, &["--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        ready(&mut child);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let status_of_it = ended(&mut child);
        assert_eq!(status_of_it, Some(status), "{signal}: {}", read(child.stderr));
    }
    assert_eq!(collector.list(), Vec::<Value>::new());
}

#[test]
fn without_a_collector_crashes_are_saved_with_a_warning() {
    let collector = Collector::new(PROBE_ALONE);
    let ran = run(service(&collector, &["--"]).arg(example("crash_null"))).exited(128 + 11);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let [warning, told] = lines.as_slice() else {
        panic!("not one warning: {ran:?}");
    };
    assert!(warning.contains("no collector answers at"), "{warning}");
    assert!(told.contains("SIGSEGV ended process"), "{told}");
    let listed = collector.list();
    assert_eq!(listed.len(), 1, "{listed:?}");
    has_history(&collector, &listed[0]);
    assert_eq!(
        listed[0]["crash_to_reader_us"],
        Value::Null,
        "nobody was there to see it"
    );
}

#[test]
fn spool_stays_below_its_limit() {
    let collector = Collector::new(&format!("spool_limit = \"1\"\n{PROBE_ALONE}"));
    let mut newest = String::new();
    for _ in 0..3 {
        let ran = run(service(&collector, &["--"]).arg(example("crash_null"))).exited(128 + 11);
        newest = ran.stderr.trim().rsplit(' ').next().unwrap().to_owned();
    }
    let listed = collector.list();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["id"], *newest);
}

#[test]
fn attached_process_is_claimed() {
    if cannot() {
        return;
    }
    let collector = Collector::started(PROBE_ALONE);
    let attach = |pid: u32| {
        service(&collector, &["--pid", &pid.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut program = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(program.id() as i32);
    // The status of a traced process has the id of its tracer.
    let traced = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.contains("TracerPid:\t0\n")
    };
    let mut recorder = attach(program.id());
    until("the process is traced", traced);
    std::thread::sleep(Duration::from_millis(500));
    kill(Pid::from_raw(recorder.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(ended(&mut recorder), Some(0), "{}", read(recorder.stderr));
    assert_eq!(program.try_wait().unwrap(), None, "it runs on");
    assert_eq!(collector.list(), Vec::<Value>::new());
    let mut recorder = attach(program.id());
    until("the process is traced", traced);
    std::thread::sleep(Duration::from_millis(500));
    kill(pid, Signal::SIGSEGV).unwrap();
    program.wait().unwrap();
    assert_eq!(ended(&mut recorder), Some(128 + 11), "{}", read(recorder.stderr));
    let listed = collector.list();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["pid"], pid.as_raw());
    assert!(listed[0]["history_bytes"].as_u64().unwrap() > 0, "{listed:?}");
}

#[test]
fn bundles_of_recorders_count_for_the_limit() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[limit]\nburst = 2\nper_second = 0\n");
    let saved: Vec<bool> = (0..4)
        .map(|_| {
            let ran = run(service(&collector, &["--"]).arg(example("crash_null"))).exited(128 + 11);
            assert!(
                ran.stderr.contains("SIGSEGV ended process") || ran.stderr.contains("rate limit"),
                "{ran:?}"
            );
            !ran.stderr.contains("rate limit")
        })
        .collect();
    assert_eq!(saved, [true, true, false, false], "{}", collector.log());
    let listed = collector.list();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(collector.metric("crashes_recorded_total"), 4.0);
    assert_eq!(collector.metric("crashes_limited_total"), 2.0);
}
