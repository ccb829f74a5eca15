//! `cargo xtask bench debug`: times of the debugger's commands, from random positions of a run.
//!
//! `backtrail-bench-debug` (`bench/src/debug/`) measures. This module records the runs and prints
//! the tables.

use super::{folder, machine, typed};
use crate::{Failure, packages, shell};
use backtrail_tests::real::Child;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// For each run of anything here.
const LIMIT: Duration = Duration::from_secs(1200);

/// How often the compute program does its work: 100 million instructions, about, and a quarter.
const ROUNDS: (u32, u32) = (4, 1);

/// The rounds of the program with values: 100 million instructions, about, and a tenth.
const VALUE_ROUNDS: (u32, u32) = (200, 20);

/// DebugOptions of the measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugOptions {
    /// Small runs and few positions: shows that the benchmark works, no figures.
    pub quick: bool,
    /// One JSON object a program instead of the tables.
    pub json: bool,
    /// Records again even if a recording exists.
    pub fresh: bool,
    /// How many positions.
    places: Option<u32>,
}

impl DebugOptions {
    /// Reads them.
    pub fn parse(arguments: &[&str]) -> Result<Self, Failure> {
        let mut options = Self::default();
        typed::read(
            arguments,
            |_| false,
            |word| {
                match word.name {
                    "--quick" => options.quick = true,
                    "--json" => options.json = true,
                    "--fresh" => options.fresh = true,
                    "--places" => options.places = Some(word.number()?),
                    _ => return Ok(false),
                }
                Ok(true)
            },
        )?;
        Ok(options)
    }

    fn places(&self) -> u32 {
        self.places.unwrap_or(if self.quick { 20 } else { 1000 }).max(1)
    }

    fn shown(&self) -> String {
        let flags = [
            (self.quick, "--quick"),
            (self.json, "--json"),
            (self.fresh, "--fresh"),
        ];
        let places = self.places.map(|places| places.to_string());
        typed::shown(&flags, [("--places", places)], &[])
    }
}

/// Records what is not there yet, measures, prints.
pub fn run(options: &DebugOptions, backtrail: &Path) -> Result<(), Failure> {
    packages::ensure(&[packages::BUILD])?;
    let folder = folder(match options.quick {
        true => "bench/debug-quick",
        false => "bench/debug",
    })?;
    let meter = meter_binary()?;
    let bundle = recorded(options, &folder, backtrail)?;
    eprintln!("load {}", machine::load());
    let mut command = Command::new(&meter);
    command.arg(&bundle).arg(options.places().to_string());
    command.arg(recorded_with_values(options, &folder, backtrail)?);
    let ended = Child::run(command, &folder, "measure", LIMIT)
        .and_then(|ended| ended.succeeded("measure"))
        .map_err(|error| error.to_string())?;
    let mut row: Value = serde_json::from_slice(&ended.stdout).map_err(|error| error.to_string())?;
    if options.json {
        row["schema"] = "backtrail-bench-debug/1".into();
        row["machine"] = machine::line().into();
        println!("{row}");
        return Ok(());
    }
    let command = format!("cargo xtask bench debug {}", options.shown());
    println!(
        "`{}` on {}; load at the end {}.\n{}",
        command.trim_end(),
        machine::line(),
        machine::load(),
        markdown(&row)
    );
    Ok(())
}

/// Returns the bundle of a run of the compute program with debug information, recorded if needed.
pub(super) fn recorded(options: &DebugOptions, folder: &Path, backtrail: &Path) -> Result<PathBuf, Failure> {
    let bundle = folder.join("bundle");
    if bundle.is_dir() && !options.fresh {
        return Ok(bundle);
    }
    let rounds = if options.quick { ROUNDS.1 } else { ROUNDS.0 };
    record("compute", rounds, &[], &bundle, backtrail)?;
    Ok(bundle)
}

/// Returns the bundle of a run with recorded values, recorded if needed.
fn recorded_with_values(options: &DebugOptions, folder: &Path, backtrail: &Path) -> Result<PathBuf, Failure> {
    let bundle = folder.join("values.bundle");
    if !bundle.is_dir() || options.fresh {
        let rounds = if options.quick {
            VALUE_ROUNDS.1
        } else {
            VALUE_ROUNDS.0
        };
        record("values", rounds, &["--values"], &bundle, backtrail)?;
    }
    Ok(bundle)
}

/// Compiles a workload with debug information, and records it.
fn record(name: &str, rounds: u32, options: &[&str], bundle: &Path, backtrail: &Path) -> Result<(), Failure> {
    eprintln!("recording {name}");
    let folder = bundle.parent().ok_or("the bundle has no folder")?;
    let program = folder.join(name);
    let mut compile = Command::new("cc");
    compile.args(["-g", "-O1", "-o"]).arg(&program);
    shell::run(compile.arg(format!("tests/fixtures/workloads/{name}.c")))?;
    let _ = fs::remove_dir_all(bundle);
    let mut record = Command::new(backtrail);
    record
        .args(["record", "--exit-zero", "--full", "-o"])
        .arg(bundle)
        .args(options)
        .arg("--");
    record.arg(&program).arg(rounds.to_string());
    Child::run(record, folder, "record", LIMIT)
        .and_then(|ended| ended.succeeded("record"))
        .map_err(|error| error.to_string())?;
    Ok(())
}

/// The release build of what measures.
fn meter_binary() -> Result<PathBuf, Failure> {
    let mut build = shell::cargo();
    shell::run(build.args([
        "build",
        "--release",
        "--package",
        "backtrail-bench",
        "--bin",
        "backtrail-bench-debug",
        "--no-default-features",
        "--features",
        "debug",
    ]))?;
    let binary = shell::target().join("release/backtrail-bench-debug");
    binary
        .canonicalize()
        .map_err(|error| format!("cannot find {}: {error}", binary.display()))
}

fn markdown(row: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let mut text = format!(
        "\n{:.0} million instructions, opened in {:.0} ms; the first search took {:.0} ms, the first list {:.0} ms.\n\n\
         | command | times | p50 ms | p90 ms | p99 ms | max ms |\n|---|---:|---:|---:|---:|---:|\n",
        number(&row["instructions"]) / 1e6,
        number(&row["open_ms"]),
        number(&row["first_search_ms"]),
        number(&row["first_list_ms"]),
    );
    append_verbs(&mut text, row);
    append_values(&mut text, &row["values"]);
    text
}

/// Appends the searches and commands of a bundle with values.
fn append_values(text: &mut String, values: &Value) {
    let Some(instructions) = values["instructions"].as_f64() else {
        return;
    };
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let _ = write!(
        text,
        "\nRecorded values, {:.0} million instructions. Cold is the first search of a session, and warm \
         the slowest of the later ones.\n\n| search | instructions back | cold ms | warm ms |\n\
         |---|---:|---:|---:|\n",
        instructions / 1e6
    );
    for search in values["searches"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.1} |",
            search["command"].as_str().unwrap_or_default(),
            search["distance"],
            number(&search["cold_ms"]),
            number(&search["warm_ms"]),
        );
    }
    text.push_str(
        "\n| command | times | p50 ms | p90 ms | p99 ms | max ms |\n|---|---:|---:|---:|---:|---:|\n",
    );
    append_verbs(text, values);
}

fn append_verbs(text: &mut String, row: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    for verb in row["verbs"].as_array().into_iter().flatten() {
        let failed = match verb["failed"].as_u64() {
            Some(0) | None => String::new(),
            Some(failed) => format!(" ({failed} refused)"),
        };
        let _ = writeln!(
            text,
            "| `{}`{failed} | {} | {:.3} | {:.3} | {:.3} | {:.3} |",
            verb["command"].as_str().unwrap_or_default(),
            verb["times"],
            number(&verb["p50_ms"]),
            number(&verb["p90_ms"]),
            number(&verb["p99_ms"]),
            number(&verb["max_ms"]),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_read_back_as_typed() {
        let typed = ["--quick", "--places", "7"];
        let options = DebugOptions::parse(&typed).unwrap();
        assert_eq!((options.shown(), options.places()), (typed.join(" "), 7));
        assert!(DebugOptions::parse(&["xz"]).is_err());
    }

    #[test]
    fn row_has_percentiles_and_refused_commands() {
        let row = json!({
            "instructions": 99_600_000, "open_ms": 1.0, "first_search_ms": 2.0, "first_list_ms": 3.0,
            "verbs": [{ "command": "next", "times": 9, "failed": 1, "p50_ms": 0.5, "p90_ms": 0.75, "p99_ms": 1.0, "max_ms": 2.25 }],
        });
        let text = markdown(&row);
        assert!(text.contains("100 million instructions"), "{text}");
        assert!(
            text.ends_with("| `next` (1 refused) | 9 | 0.500 | 0.750 | 1.000 | 2.250 |\n"),
            "{text}"
        );
    }

    #[test]
    fn values_have_searches_and_commands() {
        let values = json!({
            "instructions": 100_400_000,
            "searches": [{ "command": "`last`", "distance": 7, "cold_ms": 12.4, "warm_ms": 0.25 }],
            "verbs": [{ "command": "info locals", "times": 9, "p50_ms": 0.5, "p90_ms": 0.75, "p99_ms": 1.0, "max_ms": 2.25 }],
        });
        let text = markdown(&json!({ "values": values }));
        assert!(
            text.contains("Recorded values, 100 million instructions."),
            "{text}"
        );
        assert!(text.contains("| `last` | 7 | 12 | 0.2 |\n"), "{text}");
        assert!(
            text.ends_with("| `info locals` | 9 | 0.500 | 0.750 | 1.000 | 2.250 |\n"),
            "{text}"
        );
        assert!(!markdown(&json!({})).contains("Recorded values"));
    }
}
