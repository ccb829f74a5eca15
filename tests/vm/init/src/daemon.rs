//! The whole daemon: a program crashes, and its bundle with history and core is in the spool.

mod clock;
mod running;

pub use running::{BACKTRAIL, Daemon, PATIENCE, Setup, said};

use crate::child::{Waiting, killed_by};
use crate::feed::{Cut, Feed, recording};
use crate::{Outcome, Report, Test};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const TESTS: &[Test] = &[
    Test {
        name: "daemon/crash",
        run: crash,
    },
    Test {
        name: "daemon/migrating",
        run: migrating,
    },
    Test {
        name: clock::NAME,
        run: clock::stepped,
    },
];

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// A program crashes on one processor.
fn crash(report: &mut Report) -> Outcome {
    whole_way(report, "daemon/crash", "crash", Cut::Continuous)
}

/// A program that ran on both processors crashes.
fn migrating(report: &mut Report) -> Outcome {
    whole_way(report, "daemon/migrating", "migrate", Cut::Independent)
}

fn whole_way(report: &mut Report, test: &str, program: &str, cut: Cut) -> Outcome {
    let place = PathBuf::from("/var").join(test);
    let before = core_pattern()?;
    let mut daemon = Daemon::start(&Setup::at(&place))?;
    if core_pattern()? == before {
        return Err(format!("the daemon is ready, but core_pattern is still {before}"));
    }
    let pid = crash_of(program, cut)?;
    let row = daemon.crash_of(pid)?;
    daemon.end()?;
    if core_pattern()? != before {
        return Err(format!(
            "the daemon has ended, but core_pattern is {}",
            core_pattern()?
        ));
    }
    // Figures of an emulated machine are not those of a real one: they are shown and not checked.
    report.note(&format!(
        "{test}: crash to reader {} µs, to stop {} µs, {} bytes of history, in emulation",
        row["crash_to_reader_us"], row["crash_to_stop_us"], row["history_bytes"]
    ))?;
    hand_out(report, test, &place, &complete(&row)?, program)
}

/// Runs a program to its crash while its pieces are fed, and returns its process id.
pub fn crash_of(program: &str, cut: Cut) -> Result<u32, String> {
    let mut feed = Feed::open()?;
    let waiting = Waiting::start(&format!("/recordings/{program}"), 0)?;
    let pid = waiting.pid();
    feed.give(pid, &recording(program, cut)?)?;
    killed_by(&mut waiting.begin()?, PATIENCE)?;
    Ok(pid)
}

/// Returns the path of a bundle that is listed as complete and has a core.
pub fn complete(row: &Value) -> Result<PathBuf, String> {
    let missing = row["missing"].as_array().map_or(0, Vec::len);
    if row["signal"] != 11 || row["complete"] != true || missing != 0 {
        return Err(format!("the crash is listed as {row}"));
    }
    let bundle = PathBuf::from(row["bundle"].as_str().ok_or("no bundle is listed")?);
    if !bundle.join("core").is_file() {
        return Err(format!("{} has no core", bundle.display()));
    }
    Ok(bundle)
}

/// Packs a bundle for decoding outside: it must have the whole recording of `program`.
pub fn hand_out(report: &mut Report, test: &str, place: &Path, bundle: &Path, program: &str) -> Outcome {
    let packed = place.join("bundle.btz");
    said(
        Command::new(BACKTRAIL)
            .arg("pack")
            .arg(bundle)
            .arg("-o")
            .arg(&packed),
    )?;
    report.bundle(test, &packed, program, false)
}

fn core_pattern() -> Result<String, String> {
    fs::read_to_string(CORE_PATTERN).map_err(|error| format!("cannot read {CORE_PATTERN}: {error}"))
}
