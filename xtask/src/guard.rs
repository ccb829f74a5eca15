//! `cargo xtask guard`: bounds on the machine instructions that decoding costs.
//!
//! `backtrail-guard` (`bench/src/guard/`) decodes a fixed synthetic trace under cachegrind. The
//! bounds are in [`BOUNDS`], one line per stage: its name, and machine instructions per decoded
//! one.

use crate::{Failure, cachegrind, packages, shell};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the bounds are.
const BOUNDS: &str = "bench/src/guard/bounds.txt";

/// The counted stages, and the stage of `backtrail-guard` that is subtracted.
const STAGES: &[(&str, &str)] = &[("flow", "trace"), ("history", "trace"), ("forest", "history")];

/// How much above its bound a stage may be: compilers and libraries differ.
const TOLERANCE: f64 = 0.15;

/// Counts; compares with the bounds, or makes the counts the bounds.
pub fn run(accept: bool) -> Result<(), Failure> {
    packages::ensure(&[packages::BUILD, packages::COUNT])?;
    if !shell::in_path("valgrind") {
        println!("The cost of decoding is not checked, because valgrind is missing.");
        return Ok(());
    }
    let mut build = shell::cargo();
    shell::run(
        build
            .args(["build", "--release", "--package", "backtrail-bench"])
            .args(["--no-default-features", "--bin", "backtrail-guard"]),
    )?;
    let binary = shell::target().join("release/backtrail-guard");
    let mut counted = Vec::new();
    for &(stage, base) in STAGES {
        let ((with, decoded), (without, _)) = (count(&binary, stage)?, count(&binary, base)?);
        counted.push((stage, with.saturating_sub(without) as f64 / decoded.max(1) as f64));
    }
    if accept {
        return fs::write(BOUNDS, written(&counted))
            .map_err(|error| format!("cannot write {BOUNDS}: {error}"));
    }
    let bounds = fs::read_to_string(BOUNDS).map_err(|error| format!("cannot read {BOUNDS}: {error}"))?;
    println!("Machine instructions for each decoded one:");
    let mut exceeded = Vec::new();
    for (stage, cost) in counted {
        let bound = bound(&bounds, stage)?;
        println!("    {stage:8} {cost:6.1}, bound {bound:.1}");
        if cost > bound * (1.0 + TOLERANCE) {
            exceeded.push(stage);
        }
    }
    if exceeded.is_empty() {
        return Ok(());
    }
    Err(format!(
        "decoding costs more than it did, by more than {:.0} %: {}. If it is worth it, `cargo xtask guard --accept` \
         writes the new bounds to {BOUNDS}",
        TOLERANCE * 100.0,
        exceeded.join(", ")
    ))
}

/// The machine instructions of a stage and all before it, and how many it decoded.
fn count(binary: &Path, stage: &str) -> Result<(u64, u64), Failure> {
    let folder = tempfile::tempdir().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let counts = folder.path().join("counts");
    let words = cachegrind::words(&counts);
    let mut command = Command::new(words.first().map_or("valgrind", String::as_str));
    command.args(words.iter().skip(1)).arg(binary).arg(stage);
    let output = command
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    match told.trim().parse() {
        Ok(decoded) if output.status.success() => Ok((cachegrind::total(&counts)?, decoded)),
        _ => Err(format!(
            "backtrail-guard {stage} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

fn written(counted: &[(&str, f64)]) -> String {
    counted.iter().fold(String::new(), |mut text, (stage, cost)| {
        let _ = writeln!(text, "{stage} {cost:.1}");
        text
    })
}

fn bound(bounds: &str, stage: &str) -> Result<f64, Failure> {
    let of_stage = |line: &str| line.strip_prefix(stage)?.trim().parse().ok();
    let found = bounds.lines().find_map(of_stage);
    found.ok_or_else(|| format!("{BOUNDS} has no bound for {stage}: `cargo xtask guard --accept` writes one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_written() {
        let text = written(&[("flow", 26.66), ("history", 40.0)]);
        assert_eq!(text, "flow 26.7\nhistory 40.0\n");
        assert_eq!(bound(&text, "flow"), Ok(26.7));
        assert!(bound(&text, "forest").is_err_and(|error| error.contains("--accept")));
    }
}
