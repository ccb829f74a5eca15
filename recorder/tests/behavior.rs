//! What the recorder does to the program and to itself: it is not seen, it does not hang, it leaves
//! nothing behind.
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

/// A place for a program and a bundle.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn bundle(&self) -> PathBuf {
        self.0.path().join("bundle")
    }

    /// Compiles a source of `tests/sources/`; `None`: this compiler cannot.
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
fn the_program_does_not_see_that_it_is_stepped() {
    let place = Place::new();
    let outcome = place.record("traps.c");
    assert_eq!((outcome.ending, outcome.gaps), (Ending::Exited(0), 0));
    check(&outcome);
}

#[test]
fn the_vsyscall_page_is_followed() {
    let place = Place::new();
    let outcome = place.record("vsyscall.c");
    assert_eq!((outcome.ending, outcome.gaps), (Ending::Exited(0), 0));
    check(&outcome);
}

#[test]
fn faults_name_the_instructions_of_the_program() {
    for engine in [Engine::Step, Engine::Translate] {
        let place = Place::new();
        let program = place.compile("faults.c", &[]).unwrap();
        let outcome = record(RecordOptions {
            engine,
            golden: false,
            ..place.options(run(program))
        })
        .unwrap();
        assert_eq!(outcome.ending, Ending::Exited(0));
    }
}

#[test]
fn rewritten_code_is_stepped_as_it_is_and_said_so() {
    let place = Place::new();
    let outcome = place.record("jit.c");
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
fn a_ring_keeps_the_newest_and_begins_where_a_decoder_can() {
    let place = Place::new();
    let program = backtrail_tests::built("ledger", backtrail_tests::programs::Variant::Static).unwrap();
    let outcome = record(RecordOptions {
        ring: Some(6 << 10),
        ..place.options(run(program))
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
fn a_stopped_program_stays_stopped_until_it_is_woken() {
    let place = Place::new();
    let begun = Instant::now();
    let outcome = place.record("stops.c");
    assert_eq!(outcome.ending, Ending::Exited(3));
    assert_eq!(outcome.threads, 1, "the child ran free");
    assert!(begun.elapsed() > Duration::from_millis(300));
    check(&outcome);
}

#[test]
fn being_killed_from_outside_ends_the_recording() {
    let place = Place::new();
    let outcome = place.record("suicide.c");
    assert_eq!((outcome.ending, outcome.threads), (Ending::Killed(9), 2));
    check(&outcome);
}

#[test]
fn a_duration_ends_the_recording_and_what_it_started() {
    let place = Place::new();
    let program = place.compile("endless.c", &["-static"]).unwrap();
    let recorded = |seconds| {
        let options = RecordOptions {
            duration: Some(Duration::from_secs(seconds)),
            ..place.options(run(program.clone()))
        };
        record(options).unwrap()
    };
    // On a busy machine it takes longer to come to its second thread.
    let mut outcome = recorded(3);
    for seconds in [10, 40] {
        if outcome.threads < 2 {
            std::fs::remove_dir_all(place.bundle()).unwrap();
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
    let place = Place::new();
    let target = Target::Command(["sleep", "1000"].map(OsString::from).to_vec());
    let options = RecordOptions {
        stop: &STOP,
        ..place.options(target)
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
fn an_attached_process_is_let_go_as_it_was() {
    let place = Place::new();
    let program = place.compile("endless.c", &[]).unwrap();
    let mut child = Command::new(program).spawn().unwrap();
    let pid = child.id();
    std::thread::sleep(Duration::from_millis(100));
    let target = Target::Processes(vec![Pid(pid)]);
    let options = RecordOptions {
        duration: Some(Duration::from_millis(500)),
        ..place.options(target)
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
fn what_cannot_be_recorded_is_said() {
    let place = Place::new();
    let missing = place.options(run("/nonexistent/program".into()));
    assert!(matches!(record(missing), Err(Error::Spawn { .. })));
    let nobody = place.options(Target::Processes(vec![Pid(u32::MAX >> 1)]));
    assert!(matches!(record(nobody), Err(Error::Attach { .. })));
    assert!(matches!(
        record(place.options(Target::Command(Vec::new()))),
        Err(Error::NoCommand)
    ));
    assert!(!place.bundle().exists());
    let Some(legacy) = place.compile("legacy.S", &["-m32", "-nostdlib", "-static"]) else {
        println!("skipped: this compiler makes no 32-bit programs");
        return;
    };
    let refused = record(place.options(run(legacy)));
    assert!(matches!(refused, Err(Error::Not64Bit(_))), "{refused:?}");
}
