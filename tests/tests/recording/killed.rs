//! The recorder is killed: the program ends or continues, and is never left stopped.

use backtrail_tests::backtrail::{binary, command};
use backtrail_tests::build;
use backtrail_tests::programs::{Ending, Program, Variant};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// Returns a value of `/proc/PID/status`, or `None` if the process has ended.
fn status(pid: u32, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches(':').trim().to_owned())
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn record(folder: &Path, rest: &[&str]) -> Child {
    Command::new(binary().unwrap())
        .args(["record", "-o"])
        .arg(folder.join("bundle"))
        .args(rest)
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("said")).unwrap())
        .spawn()
        .unwrap()
}

/// Waits for the last line of the recorder's standard error.
fn last_word(folder: &Path) -> String {
    let said = || fs::read_to_string(folder.join("said")).unwrap_or_default();
    until("the last word", || said().contains("the recorder was killed"));
    said()
}

/// `Child::kill` sends SIGKILL.
fn kill(mut recorder: Child) {
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}

#[test]
fn a_program_that_the_recorder_started_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let script = format!("echo $$ > {}; while :; do :; done", begun.display());
    let recorder = record(folder.path(), &["--", "sh", "-c", &script]);
    let text = || fs::read_to_string(&begun).unwrap_or_default();
    until("the program begins", || text().ends_with('\n'));
    let pid: u32 = text().trim().parse().unwrap();
    kill(recorder);
    until("the program ends", || {
        status(pid, "State").is_none_or(|state| state.starts_with('Z'))
    });
    assert!(last_word(folder.path()).contains("the program that it started was killed with it"));
}

#[test]
fn attached_process_is_never_left_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = shell("i=0; while :; do i=$((i+1)); [ $((i % 7)) = 3 ] && kill -0 $$; done")
        .spawn()
        .unwrap();
    let pid = process.id();
    let recorder = record(folder.path(), &["--pid", &pid.to_string()]);
    until("the recorder attaches", || {
        status(pid, "TracerPid").is_some_and(|tracer| tracer != "0")
    });
    std::thread::sleep(Duration::from_millis(300));
    kill(recorder);
    // The program ends at its next untranslated block, or loops in translated ones.
    until("it is let go", || {
        process.try_wait().unwrap().is_some() || status(pid, "TracerPid").is_some_and(|tracer| tracer == "0")
    });
    for _ in 0..20 {
        let state = status(pid, "State").unwrap_or_default();
        assert!(!state.starts_with(['t', 'T']), "{state}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = last_word(folder.path());
    let runs_on = process.try_wait().unwrap().is_none();
    assert_eq!(
        (
            said.contains(&format!("process {pid} still runs")),
            said.contains("has exited")
        ),
        (runs_on, !runs_on),
        "{said}"
    );
    let _ = process.kill();
    process.wait().unwrap();
}

/// A new thread that a crash ends before its first traced instruction is released. Otherwise it
/// would keep the process and the recording forever.
#[test]
fn crash_during_thread_starts_ends_the_recording() {
    const BIRTHS: Program = Program {
        name: "births",
        source: "../killed/births.c",
        flags: &["-O1", "-pthread"],
        variants: &[Variant::Pie],
        ending: Ending::Signal(11),
        deterministic: false,
    };
    /// Before the fix, two runs in thirty-four hung.
    const RUNS: usize = 25;
    let program = build(&BIRTHS, Variant::Pie).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for run in 0..RUNS {
        let mut command = command().unwrap();
        command
            .args(["record", "--overwrite", "-o"])
            .arg(folder.path().join("bundle"));
        command.arg("--").arg(&program);
        let mut recorder = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while recorder.try_wait().unwrap().is_none() {
            if begun.elapsed() > LIMIT {
                recorder.kill().unwrap();
                recorder.wait().unwrap();
                panic!("recording {run} does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
