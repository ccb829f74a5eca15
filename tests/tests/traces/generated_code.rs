//! Names of code that programs generate, by perf maps and jitdumps.

use crate::profile_recordings::{build, report, share};
use backtrail_profile::{Frame, Profile, format};
use backtrail_tests::backtrail::command;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

const PROGRAM: &str = include_str!("generated_code.c");

/// The output of a run of the program, without the perf map that it left.
struct Run {
    recording: PathBuf,
    times: BTreeMap<String, f64>,
    errors: String,
}

fn run(folder: &TempDir, program: &Path, kind: &str) -> Run {
    let recording = folder.path().join("recording");
    let mut backtrail = command().unwrap();
    backtrail.args(["profile", "record", "--overwrite", "--freq", "499", "-o"]);
    backtrail.arg(&recording).arg("--").arg(program).arg(kind);
    let Output {
        status,
        stdout,
        stderr,
    } = backtrail.current_dir(folder.path()).output().unwrap();
    let [printed, errors] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(status.success(), "{errors}");
    let words: Vec<_> = printed.split_whitespace().collect();
    let mut times: BTreeMap<String, f64> = words
        .chunks(2)
        .map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap()))
        .collect();
    let pid = times.remove("pid").unwrap();
    // Only some runs leave one.
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    Run {
        recording,
        times,
        errors,
    }
}

/// Checks that each function has the share of the time that the program measured itself.
fn check_shares(run: &Run, names: &[(&str, &str)]) {
    let top = report(&run.recording, &["--limit", "1000"]);
    let all: f64 = run.times.values().sum();
    for (name, key) in names {
        let expected = run.times[*key] / all;
        let found = share(&top, name);
        assert!(
            (found - expected).abs() < 0.1,
            "{name}: {found}, not {expected}: {top}"
        );
    }
    assert!(share(&top, "main") > 0.9, "{top}");
}

fn program(folder: &TempDir) -> PathBuf {
    build(folder, "generator", PROGRAM, &[])
}

#[test]
fn perf_maps_name_generated_code() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(&folder);
    for kind in ["map", "late"] {
        let run = run(&folder, &program, kind);
        check_shares(&run, &[("alpha one", "alpha"), ("beta", "beta")]);
    }
}

/// Returns the number of innermost frames in each function and line.
fn innermost(profile: &Profile) -> BTreeMap<(String, u32), usize> {
    let mut counts = BTreeMap::new();
    for sample in &profile.samples {
        let Some((_, frame)) = profile.stacks.split(sample.stack) else {
            continue;
        };
        if let Some(Frame::Function { function, line }) = profile.frames.get(frame) {
            let name = profile.text(profile.functions.get(*function).unwrap().name);
            *counts.entry((name.to_owned(), *line)).or_default() += 1;
        }
    }
    counts
}

/// `gamma` replaces `alpha` at its address, and `beta` moves.
#[test]
fn jitdumps_name_code_by_time_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(&folder, &program(&folder), "dump");
    check_shares(
        &run,
        &[("alpha one", "alpha"), ("beta", "beta"), ("gamma", "gamma")],
    );
    let profile = format::read(&fs::read(&run.recording).unwrap()).unwrap();
    let lines = innermost(&profile);
    for name in ["alpha one", "beta", "gamma"] {
        let of = |line| lines.get(&(name.to_owned(), line)).copied().unwrap_or(0);
        // All but a few instructions of a function are its loop.
        assert!(of(11) > 50 && of(10) <= of(11) / 20, "{name}: {lines:?}");
    }
}

#[test]
fn code_without_a_trusted_list_has_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(&folder);
    for kind in ["", "link"] {
        let run = run(&folder, &program, kind);
        let top = report(&run.recording, &["--limit", "1000"]);
        for name in ["alpha one", "beta"] {
            assert_eq!(share(&top, name), 0.0, "{kind}: {top} {}", run.errors);
        }
        assert!(share(&top, "main") > 0.9, "{top}");
    }
}
