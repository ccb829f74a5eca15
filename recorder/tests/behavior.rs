//! Tests of the recorder's side effects: it is invisible to the program, does not hang, and leaves
//! attached processes unchanged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod oracle;

use backtrail_pt::Pid;
use backtrail_recorder::{Ending, Engine, Error, Outcome, RecordOptions, Target, record};
use oracle::check;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static NEVER: AtomicBool = AtomicBool::new(false);

/// A folder for a program and a bundle.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn bundle(&self) -> PathBuf {
        self.0.path().join("bundle")
    }

    /// Compiles a source of `tests/sources/`, or returns `None` if the compiler cannot.
    fn compile(&self, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let program = self.0.path().join("program");
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sources")).join(source);
        let built = Command::new("cc")
            .args(["-O1", "-pthread", "-o"])
            .args([&program, &source])
            .args(flags)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        built.success().then_some(program)
    }

    fn options(&self, target: Target) -> RecordOptions<'static> {
        RecordOptions {
            engine: Engine::Step,
            golden: true,
            ..RecordOptions::new(target, self.bundle(), &NEVER)
        }
    }

    fn record(&self, source: &str) -> Outcome {
        record(self.options(run(self.compile(source, &[]).unwrap()))).unwrap()
    }
}

fn run(program: PathBuf) -> Target {
    Target::Command(vec![OsString::from(program)])
}

fn state(pid: u32) -> Option<(String, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |key: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap()
            .trim()
            .to_owned()
    };
    Some((field("State:"), field("TracerPid:").parse().unwrap()))
}

fn cpus_allowed(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn stepping_is_invisible_to_program() {
    let folder = Folder::new();
    let outcome = folder.record("traps.c");
    assert_eq!((outcome.ending, outcome.gaps), (Ending::Exited(0), 0));
    check(&outcome);
}

#[test]
fn vsyscalls_are_recorded() {
    let folder = Folder::new();
    let outcome = folder.record("vsyscall.c");
    assert_eq!((outcome.ending, outcome.gaps), (Ending::Exited(0), 0));
    check(&outcome);
}

#[test]
fn fault_addresses_are_program_addresses() {
    for engine in [Engine::Step, Engine::Translate] {
        let folder = Folder::new();
        let program = folder.compile("faults.c", &[]).unwrap();
        let outcome = record(RecordOptions {
            engine,
            golden: false,
            ..folder.options(run(program))
        })
        .unwrap();
        assert_eq!(outcome.ending, Ending::Exited(0));
    }
}

#[test]
fn rewritten_code_is_recorded_with_a_note() {
    let folder = Folder::new();
    let outcome = folder.record("jit.c");
    assert_eq!((outcome.ending, outcome.gaps), (Ending::Exited(0), 0));
    let bundle = check(&outcome);
    assert!(
        bundle
            .manifest()
            .meta
            .notes
            .iter()
            .any(|note| note.contains("rewrite"))
    );
}

#[test]
fn ring_keeps_newest_packets_from_a_psb() {
    let folder = Folder::new();
    let program = backtrail_tests::built("ledger", backtrail_tests::programs::Variant::Static).unwrap();
    let outcome = record(RecordOptions {
        ring: Some(6 << 10),
        ..folder.options(run(program))
    })
    .unwrap();
    assert!(
        outcome.dropped > 0 && outcome.bytes < 9 << 10,
        "{} {}",
        outcome.dropped,
        outcome.bytes
    );
    check(&outcome);
}

#[test]
fn stopped_program_stays_stopped_until_sigcont() {
    let folder = Folder::new();
    let begun = Instant::now();
    let outcome = folder.record("stops.c");
    assert_eq!(outcome.ending, Ending::Exited(3));
    assert_eq!(outcome.threads, 1, "the child ran free");
    assert!(begun.elapsed() > Duration::from_millis(300));
    check(&outcome);
}

#[test]
fn external_sigkill_ends_recording() {
    let folder = Folder::new();
    let outcome = folder.record("suicide.c");
    assert_eq!((outcome.ending, outcome.threads), (Ending::Killed(9), 2));
    check(&outcome);
}

#[test]
fn duration_ends_recording_and_kills_program() {
    let folder = Folder::new();
    let program = folder.compile("endless.c", &["-static"]).unwrap();
    let recorded = |seconds| {
        let options = RecordOptions {
            duration: Some(Duration::from_secs(seconds)),
            ..folder.options(run(program.clone()))
        };
        record(options).unwrap()
    };
    // On a busy machine the second thread may start late.
    let mut outcome = recorded(3);
    for seconds in [10, 40] {
        if outcome.threads < 2 {
            std::fs::remove_dir_all(folder.bundle()).unwrap();
            outcome = recorded(seconds);
        }
    }
    assert_eq!(
        (outcome.ending, outcome.threads),
        (Ending::Running, 2),
        "{:?} instructions",
        outcome.instructions
    );
    let pid = outcome.golden[0].pid.0;
    let bundle = check(&outcome);
    assert_eq!(state(pid), None, "killed with the recording");
    assert_eq!(bundle.core().unwrap().unwrap().contents().threads.len(), 2);
}

#[test]
fn stopping_does_not_wait_for_a_sleeping_program() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let folder = Folder::new();
    let target = Target::Command(["sleep", "1000"].map(OsString::from).to_vec());
    let options = RecordOptions {
        stop: &STOP,
        ..folder.options(target)
    };
    let begun = Instant::now();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            STOP.store(true, Ordering::Relaxed);
        });
        record(options).unwrap()
    });
    assert_eq!(outcome.ending, Ending::Running);
    assert!(begun.elapsed() < Duration::from_secs(10));
    check(&outcome);
}

#[test]
fn attached_process_is_detached_unchanged() {
    let folder = Folder::new();
    let program = folder.compile("endless.c", &[]).unwrap();
    let mut child = Command::new(program).spawn().unwrap();
    let pid = child.id();
    std::thread::sleep(Duration::from_millis(100));
    let target = Target::Processes(vec![Pid(pid)]);
    let options = RecordOptions {
        duration: Some(Duration::from_millis(500)),
        ..folder.options(target)
    };
    let outcome = record(options);
    std::thread::sleep(Duration::from_millis(100));
    let after = state(pid);
    let allowed = cpus_allowed(pid);
    let ran_on = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(allowed, cpus_allowed(std::process::id()));
    let outcome = outcome.unwrap();
    let (state, tracer) = after.unwrap();
    assert!(
        ran_on && tracer == 0 && !state.starts_with(['T', 't', 'Z']),
        "{state} {tracer}"
    );
    assert_eq!((outcome.ending, outcome.threads), (Ending::Running, 2));
    check(&outcome);
}

#[test]
fn unrecordable_targets_are_refused() {
    let folder = Folder::new();
    let missing = folder.options(run("/nonexistent/program".into()));
    assert!(matches!(record(missing), Err(Error::Spawn { .. })));
    let nobody = folder.options(Target::Processes(vec![Pid(u32::MAX >> 1)]));
    assert!(matches!(record(nobody), Err(Error::Attach { .. })));
    assert!(matches!(
        record(folder.options(Target::Command(Vec::new()))),
        Err(Error::NoCommand)
    ));
    assert!(!folder.bundle().exists());
    let Some(legacy) = folder.compile("legacy.S", &["-m32", "-nostdlib", "-static"]) else {
        println!("skipped: this compiler makes no 32-bit programs");
        return;
    };
    let refused = record(folder.options(run(legacy)));
    assert!(matches!(refused, Err(Error::Not64Bit(_))), "{refused:?}");
}
