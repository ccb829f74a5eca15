//! Real programs have the same output and exit status with and without the recorder, and their
//! traces decode.
//!
//! `BACKTRAIL_ENGINE` selects the recorder's engine, and `BACKTRAIL_PROGRAMS` selects rows by name,
//! separated by commas.

use crate::decoders;
use backtrail_tests::backtrail::binary;
use backtrail_tests::real::{self, History, Measurement, PROGRAMS, RealProgram, Recorder};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, io};

/// The time limit of a run, far above the real time.
const LIMIT: Duration = Duration::from_secs(600);

/// Only one program runs at a time, because they are timed.
static TURN: Mutex<()> = Mutex::new(());

/// Returns the recorder under test, or `None` with a message on stderr if it refuses to record
/// here.
fn recorder() -> Option<Recorder> {
    let engine = env::var("BACKTRAIL_ENGINE").unwrap_or_else(|_| "translate".to_owned());
    let recorder = Recorder {
        binary: binary().unwrap().to_path_buf(),
        engine: Some(engine),
        history: History::Ring(4),
    };
    let refusal = recorder.refusal(LIMIT).unwrap();
    if let Some(refusal) = &refusal {
        eprintln!("skipped: the recorder refuses: {refusal}");
    }
    refusal.is_none().then_some(recorder)
}

/// Measures a row. Returns `None`, with a message on stderr, if the program is not installed.
fn measure(program: &RealProgram, recorder: &Recorder, size: u32) -> Option<io::Result<Measurement>> {
    if let Some(missing) = real::missing(program) {
        eprintln!("skipped: {}: no {missing}", program.name);
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let measurement = real::measure(program, recorder, size, folder.path(), LIMIT);
    decoders::assert_agree(&folder.path().join("bundle"));
    Some(measurement)
}

#[test]
fn a_compressor_and_a_shell_run_as_without_the_recorder() {
    let Some(recorder) = recorder() else { return };
    for name in ["gzip", "bash"] {
        let program = real::find(name).unwrap();
        if let Some(measurement) = measure(program, &recorder, program.size.small) {
            let measurement = measurement.unwrap();
            assert_eq!(measurement.problems, [""; 0], "{name}: {measurement:?}");
        }
    }
}

#[test]
#[ignore = "runs every program of the table for seconds: cargo xtask test-all"]
fn every_real_program_runs_as_without_the_recorder() {
    let Some(recorder) = recorder() else { return };
    let chosen = env::var("BACKTRAIL_PROGRAMS").ok();
    let chosen = |name: &str| {
        chosen
            .as_deref()
            .is_none_or(|names| names.split(',').any(|one| one == name))
    };
    let (mut measured, mut failed) = (Vec::new(), Vec::new());
    for program in PROGRAMS.iter().filter(|program| chosen(program.name)) {
        let small = env::var_os("BACKTRAIL_SMALL").is_some();
        let size = if small {
            program.size.small
        } else {
            program.size.full
        };
        match measure(program, &recorder, size) {
            None => {}
            Some(Err(error)) => failed.push(format!("{}: {error}", program.name)),
            Some(Ok(measurement)) => {
                let problems = measurement.problems.iter();
                failed.extend(problems.map(|problem| format!("{}: {problem}", program.name)));
                eprint!("{}", real::row(&measurement));
                measured.push(measurement);
            }
        }
    }
    eprintln!("{}", real::markdown(&measured));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
