//! `backtrail profile record`: what programs did, and what a recording says of it.

use backtrail_tests::backtrail::{backtrail, command};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// `main` calls `a` and `b`, which spend three quarters and one quarter of the time.
pub(crate) const WORK: &str = "
#include <stdlib.h>
__attribute__((noinline)) long spin(long n) { volatile long s = 0; for (long i = 0; i < n; i++) s += i * i % 7; return s; }
__attribute__((noinline)) long a(long n) { return spin(3 * n) + 1; }
__attribute__((noinline)) long b(long n) { return spin(n) + 2; }
int main(int c, char **v) { long n = atol(v[1]), t = c; for (long i = 0; i < n; i++) { t += a(1000); t += b(1000); } return t == 0; }
";

/// `main` sleeps in `shorter` and `longer`, and prints the nanoseconds of both.
const SLEEP: &str = "
#include <stdio.h>
#include <time.h>
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
__attribute__((noinline)) long rest(long ms) {
    struct timespec t = {0, ms * 1000000}; long before = now(); nanosleep(&t, 0); return now() - before; }
__attribute__((noinline)) long shorter(void) { return rest(100) + 0; }
__attribute__((noinline)) long longer(void) { return rest(300) + 0; }
int main() { long s = 0, l = 0; for (int i = 0; i < 3; i++) { s += shorter(); l += longer(); } printf(\"%ld %ld\\n\", s, l); }
";

/// A thread waits five times until `hand_over` writes a byte, and `work` runs a hundred times.
const WAKE: &str = "
#include <pthread.h>
#include <unistd.h>
static int ends[2];
__attribute__((noinline)) void work(int i) { __asm__ volatile(\"\" :: \"r\"(i)); }
__attribute__((noinline)) int hand_over(void) { char c = 1; usleep(40000); return write(ends[1], &c, 1) + 1; }
void *waiter(void *x) { char c; for (int i = 0; i < 5; i++) if (read(ends[0], &c, 1) != 1) return x; return 0; }
int main() {
    for (int i = 0; i < 100; i++) work(i);
    pthread_t t; if (pipe(ends)) return 1; pthread_create(&t, 0, waiter, 0);
    for (int i = 0; i < 5; i++) hand_over();
    pthread_join(t, 0); return 0; }
";

/// Compiles a program with `cc`.
pub(crate) fn build(folder: &TempDir, name: &str, source: &str, options: &[&str]) -> PathBuf {
    build_by("cc", folder, name, source, options)
}

/// Compiles a program with some compiler.
pub(crate) fn build_by(
    compiler: &str,
    folder: &TempDir,
    name: &str,
    source: &str,
    options: &[&str],
) -> PathBuf {
    let path = folder.path().join(name);
    let file = folder.path().join(format!("{name}.c"));
    std::fs::write(&file, source).unwrap();
    let mut compiler = Command::new(compiler);
    compiler.args(["-O2", "-g", "-fno-ipa-icf", "-fno-optimize-sibling-calls"]);
    compiler.args(options).arg("-o").arg(&path).arg(&file);
    assert!(compiler.status().unwrap().success());
    path
}

/// Runs a command of `backtrail profile` that prints JSON.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let run = backtrail(["profile"].iter().chain(arguments)).unwrap();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    // The program may print before.
    let start = run.stdout.find('{').unwrap();
    serde_json::from_str(&run.stdout[start..]).unwrap()
}

pub(crate) fn report(file: &Path, arguments: &[&str]) -> Value {
    let file = file.to_str().unwrap();
    json(&[&["report", file, "--json", "--min-percent", "0"], arguments].concat())
}

/// Returns the part of all weight below a function.
pub(crate) fn share(report: &Value, name: &str) -> f64 {
    let rows = report["functions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    let total = row.map_or(0.0, |row| row["total"].as_f64().unwrap());
    total / report["total"].as_f64().unwrap()
}

pub(crate) fn record(output: &Path, options: &[&str], program: &[&str]) -> Value {
    let output = output.to_str().unwrap();
    json(
        &[
            &["record", "--overwrite", "--json", "-o", output],
            options,
            &["--"],
            program,
        ]
        .concat(),
    )
}

/// Returns the part of samples that have `a` on the stack, as perf counts them.
fn share_by_perf(program: &Path, folder: &Path) -> f64 {
    let data = folder.join("perf.data");
    let record = || {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "--call-graph", "dwarf", "-e", "cpu-clock:u"]);
        perf.args(["-F", "199", "-o"])
            .arg(&data)
            .arg("--")
            .arg(program)
            .arg("50000");
        perf.status().unwrap().success()
    };
    // perf 6.1 sometimes aborts while it reads build ids (`util/build-id.c:1010`).
    assert!((0..3).any(|_| record()), "perf record failed three times");
    let mut script = Command::new("perf");
    script.args(["script", "-F", "ip,sym", "-i"]).arg(&data);
    let text = String::from_utf8(script.output().unwrap().stdout).unwrap();
    let stacks: Vec<_> = text
        .split("\n\n")
        .filter(|stack| stack.contains("main"))
        .collect();
    let has_a = |stack: &&&str| stack.lines().any(|line| line.trim().ends_with(" a"));
    assert!(stacks.len() > 20, "{text}");
    stacks.iter().filter(has_a).count() as f64 / stacks.len() as f64
}

#[test]
fn stacks_and_shares_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    for (name, options) in [
        ("without", ["-fomit-frame-pointer"]),
        ("with", ["-fno-omit-frame-pointer"]),
    ] {
        let program = build(&folder, name, WORK, &options);
        let recorded = record(
            &output,
            &["--freq", "499"],
            &[program.to_str().unwrap(), "100000"],
        );
        assert_eq!(
            (&recorded["ending"], &recorded["lost"]),
            (&"exited".into(), &0.into())
        );
        let samples = recorded["samples"].as_u64().unwrap();
        assert!(samples > 50, "{recorded}");
        assert_eq!(recorded["incomplete"], 0, "{recorded}");
        // At 20 bytes a sample, apart from the tables of one second.
        assert!(
            recorded["bytes"].as_u64().unwrap() < 2000 + 20 * samples,
            "{recorded}"
        );
        let top = report(&output, &["--limit", "1000"]);
        for (function, expected) in [("a", 0.75), ("b", 0.25), ("main", 1.0), ("_start", 1.0)] {
            let found = share(&top, function);
            assert!((found - expected).abs() < 0.15, "{function}: {found}: {top}");
        }
        let tree = report(
            &output,
            &["--view", "tree", "--focus", "^a$", "--hide", "^__libc"],
        );
        let calls = tree["calls"].as_array().unwrap().iter().take(4);
        let names: Vec<_> = calls.map(|call| call["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["_start", "main", "a", "spin"]);
        if Command::new("perf").arg("--version").output().is_ok() {
            let by_perf = share_by_perf(&program, folder.path());
            let found = share(&top, "a");
            assert!((found - by_perf).abs() < 0.2, "{found}, but perf has {by_perf}");
        }
    }
}

/// A shell starts one program after the other. Each maps its own file, and has ended when its
/// samples are read.
#[test]
fn short_processes_have_their_own_mappings() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "short", WORK, &[]);
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do {} 2000; done",
        program.display()
    );
    record(&output, &["--freq", "1999"], &["sh", "-c", &script]);
    let top = report(&output, &["--limit", "1000", "--thread", "^short$"]);
    assert!(top["samples"].as_u64().unwrap() > 20, "{top}");
    assert!(share(&top, "main") > 0.7, "{top}");
    let of_a = share(&top, "a") / share(&top, "main");
    assert!((of_a - 0.75).abs() < 0.15, "{top}");
}

/// The id of such a program is made of its contents, which OTLP states as a hash.
#[test]
fn program_without_a_build_id_has_names_until_it_is_another_build() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "program", WORK, &["-Wl,--build-id=none"]);
    record(&output, &["--freq", "499"], &[program.to_str().unwrap(), "30000"]);
    let found = share(&report(&output, &["--limit", "1000"]), "a");
    assert!((found - 0.75).abs() < 0.2, "{found}");
    let otlp = folder.path().join("profile.otlp");
    let (from, to) = (output.to_str().unwrap(), otlp.to_str().unwrap());
    let written = backtrail(["profile", "export", from, "--format", "otlp", "-o", to]).unwrap();
    assert_eq!(written.status, Some(0), "{}", written.stderr);
    let written = String::from_utf8_lossy(&std::fs::read(&otlp).unwrap()).into_owned();
    assert!(written.contains("process.executable.build_id.htlhash"));

    build(&folder, "program", WORK, &["-Wl,--build-id=none", "-O1"]);
    let other = backtrail(["profile", "report", from, "--min-percent", "0"]).unwrap();
    assert!(other.stdout.contains("is of another build"), "{}", other.stdout);
    assert!(!other.stdout.contains(" spin"), "{}", other.stdout);
}

#[test]
fn off_cpu_time_is_what_the_program_slept() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "sleep", SLEEP, &["-fomit-frame-pointer"]);
    let output_path = output.to_str().unwrap();
    let arguments = ["profile", "record", "--event", "off-cpu", "-o", output_path, "--"];
    let run = backtrail(arguments.iter().copied().chain([program.to_str().unwrap()])).unwrap();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let slept: Vec<f64> = run
        .stdout
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let top = report(&output, &["--limit", "1000"]);
    for (function, expected) in [("shorter", slept[0]), ("longer", slept[1])] {
        let found = share(&top, function) * top["total"].as_f64().unwrap();
        // The thread also waits for a processor after it was woken, which counts for both.
        assert!(
            (found / expected - 1.0).abs() < 0.02,
            "{function}: {found} of {expected}"
        );
    }
    assert!(share(&top, "main") > 0.99, "{top}");
}

/// A child that is killed at the end.
struct Spinner(Child);

impl Spinner {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        Self(command.arg("1000000000").stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn recorder(output: &Path, pid: u32) -> Child {
    let mut recorder = command().unwrap();
    recorder.args([
        "profile",
        "record",
        "--overwrite",
        "--pid",
        &pid.to_string(),
        "-o",
    ]);
    recorder.arg(output).stderr(Stdio::piped()).spawn().unwrap()
}

/// The parent of the process waits for it later.
#[test]
fn recording_ends_with_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Command::new("sleep").arg("1").spawn().unwrap();
    let mut recorder = recorder(&folder.path().join("recording"), process.id());
    let ended = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        recorder.try_wait().unwrap().is_some()
    });
    recorder.kill().unwrap();
    assert!(ended && recorder.wait().unwrap().success());
    assert!(process.wait().unwrap().success());
}

#[test]
fn killed_recorder_leaves_what_it_wrote() {
    kill_recorders([1201, 1499, 1733, 1980, 2311].into_iter());
}

#[test]
#[ignore = "kills for minutes: cargo xtask test-all"]
fn two_hundred_kills_leave_whole_segments() {
    let settings = || {
        let names = [
            "perf_event_paranoid",
            "perf_event_max_sample_rate",
            "perf_event_mlock_kb",
        ];
        names.map(|name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap())
    };
    let before = settings();
    // All moments of two periods of blocks, in no order.
    kill_recorders((0..200).map(|index| index * 7919 % 2000));
    assert_eq!(settings(), before);
}

/// Kills a recorder for each of these milliseconds, and reads what it left.
fn kill_recorders(waits: impl Iterator<Item = u64>) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let spinner = Spinner::start(&build(&folder, "spinner", WORK, &[]));
    let (mut read, mut empty) = (0, 0);
    for wait in waits {
        let mut recorder = recorder(&output, spinner.0.id());
        let written = || std::fs::metadata(&output).map_or(0, |file| file.len());
        // The recorder is at work when the clock of the kill starts.
        while written() < 16 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(wait));
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        match written() {
            16 => empty += 1,
            _ => {
                let top = report(&output, &["--limit", "1000"]);
                assert!(top["samples"].as_u64().unwrap() > 0, "{top}");
                assert!(share(&top, "main") > 0.9, "{top}");
                assert!(!top["notes"].to_string().contains("left out"), "{top}");
                read += 1;
            }
        }
        std::fs::remove_file(&output).unwrap();
    }
    eprintln!("{read} recordings are read, and {empty} were killed before their first block");
}

#[test]
fn signals_end_a_recording_well() {
    let folder = tempfile::tempdir().unwrap();
    let spinner = Spinner::start(&build(&folder, "spinner", WORK, &[]));
    for (index, signal) in [Signal::SIGINT, Signal::SIGTERM].into_iter().enumerate() {
        let output = folder.path().join(format!("recording{index}"));
        let recorder = recorder(&output, spinner.0.id());
        while !output.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(500));
        kill(Pid::from_raw(recorder.id().cast_signed()), signal).unwrap();
        let ended = recorder.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(0), "{text}");
        assert!(
            text.contains(" samples in ") && text.contains("next: backtrail profile report"),
            "{text}"
        );
        assert!(report(&output, &[])["samples"].as_u64().unwrap() > 0);
    }
}

#[test]
fn last_branches_are_recorded_or_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(&folder, "work", WORK, &[]);
    let [program, output] = [program, folder.path().join("recording")].map(|path| path.display().to_string());
    let arguments = ["record", "--event", "lbr", "-o", &output, "--", &program, "20000"];
    let run = backtrail(["profile"].iter().chain(&arguments)).unwrap();
    if run.status == Some(1) {
        assert!(
            run.stderr.contains("keeps no last branches (LBR)"),
            "{}",
            run.stderr
        );
        assert!(!Path::new(&output).exists());
        return;
    }
    let counted = backtrail(["fdo", "--format", "preagg", &program, &output]).unwrap();
    assert_eq!(counted.status, Some(0), "{}", counted.stderr);
    assert!(
        counted.stdout.lines().any(|line| line.starts_with('B')),
        "{}",
        counted.stdout
    );
}

#[test]
fn refusals_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    std::fs::write(&output, "mine").unwrap();
    let output = output.to_str().unwrap();
    let other = folder.path().join("other");
    let other = other.to_str().unwrap();
    for (arguments, status, sentence) in [
        (
            &["-o", output, "--", "true"][..],
            1,
            "exists; use --overwrite to replace it",
        ),
        (
            &["-o", other, "--", "/nonexistent/program"],
            1,
            "cannot start /nonexistent/program",
        ),
        (
            &["-o", other, "--pid", "4194305"],
            1,
            "there is no process 4194305",
        ),
        (
            &["-o", other, "--cgroup", "/nonexistent"],
            1,
            "there is no control group /nonexistent",
        ),
        (
            &["-o", "/nonexistent/file", "--", "true"],
            1,
            "cannot write /nonexistent/file",
        ),
        (&["-o", other, "--freq", "0", "--", "true"], 2, "--freq"),
        (&["-o", other, "--all", "--pid", "1"], 2, "cannot be used with"),
        (&["-o", other], 2, "required"),
    ] {
        let run = backtrail(["profile", "record"].iter().chain(arguments)).unwrap();
        assert_eq!(run.status, Some(status), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(sentence), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(std::fs::read(output).unwrap(), b"mine");
    assert!(!Path::new(other).exists());
}

#[test]
fn damaged_recordings_are_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "work", WORK, &[]);
    record(&output, &[], &[program.to_str().unwrap(), "20000"]);
    let whole = std::fs::read(&output).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for damaged in [&whole[..whole.len() - 1], &flipped, &whole[..20]] {
        std::fs::write(&output, damaged).unwrap();
        let run = backtrail(["profile", "report", output.to_str().unwrap()]).unwrap();
        assert_eq!(run.status, Some(3), "{}", run.stderr);
        assert!(
            run.stderr.contains("recording: no block is whole"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn every_execution_of_a_probe_is_a_sample() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "wake", WAKE, &["-pthread"]);
    let program = program.to_str().unwrap();
    let probe = format!("uprobe:{program}:work");
    let write = "tracepoint:syscalls:sys_enter_write";
    let recorded = record(&output, &["--event", &probe, "--event", write], &[program]);
    assert_eq!(recorded["lost"], 0);
    let work = report(&output, &["--event", "uprobe:wake:work"]);
    assert_eq!(work["total"], 100);
    assert_eq!(share(&work, "main"), 1.0);
    let writes = report(&output, &[]);
    assert_eq!(writes["event"], "syscalls:sys_enter_write");
    assert_eq!(writes["total"], 5);
    assert_eq!(share(&writes, "hand_over"), 1.0);

    for (event, problem) in [
        (format!("uprobe:{program}:nothing"), "has no function nothing"),
        (format!("uprobe:{program}:0xq"), "is not a hexadecimal number"),
        ("uprobe:no_such_file:main".to_owned(), "give its path, or --pid"),
        (
            "tracepoint:sched:none".to_owned(),
            "the kernel has no such tracepoint",
        ),
        ("tracepoint:sched".to_owned(), "expected tracepoint:GROUP:NAME"),
        ("uprobe:main".to_owned(), "expected uprobe:FILE:FUNCTION"),
        ("waits".to_owned(), "expected cpu, off-cpu"),
    ] {
        let out = folder.path().join("none");
        let out = out.to_str().unwrap();
        let run = backtrail(["profile", "record", "-o", out, "--event", &event, "--", program]).unwrap();
        assert_ne!(run.status, Some(0));
        assert!(run.stderr.contains(problem), "{event}: {}", run.stderr);
    }
}

#[test]
fn threads_that_end_waits_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "wake", WAKE, &["-pthread"]);
    record(&output, &["--event", "off-cpu"], &[program.to_str().unwrap()]);
    let waits = report(&output, &[]);
    assert_eq!(waits["event"], "off-cpu");
    let by_writer = report(
        &output,
        &["--label", r"waker=^wake \(\d+\)$", "--focus", "waiter"],
    );
    let nanos = by_writer["total"].as_u64().unwrap();
    assert!(nanos >= 4 * 40_000_000, "{by_writer}");
    let wakeups = report(
        &output,
        &["--event", "wakeups", "--label", r"woken=^wake \(\d+\)$"],
    );
    assert_eq!(wakeups["total"], nanos);
    assert_eq!(share(&wakeups, "hand_over"), 1.0);

    // The interrupts of timers are seen by a recording of everything.
    let output_all = folder.path().join("all");
    let mut waiting = Command::new(&program).spawn().unwrap();
    let everything = [
        "profile",
        "record",
        "--all",
        "--event",
        "off-cpu",
        "--duration",
        "300ms",
        "-o",
    ];
    let everything = everything
        .map(OsStr::new)
        .into_iter()
        .chain([output_all.as_os_str()]);
    assert_eq!(backtrail(everything).unwrap().status, Some(0));
    waiting.wait().unwrap();
    let by_interrupts = report(
        &output_all,
        &["--event", "off-cpu", "--label", "waker=^interrupt$"],
    );
    assert!(by_interrupts["total"].as_u64().unwrap() > 0, "{by_interrupts}");
}
