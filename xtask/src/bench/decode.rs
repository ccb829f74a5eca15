//! `cargo xtask bench decode`: how fast streams of real programs are decoded, by our engines and by others.
//!
//! What is measured runs in `backtrail-bench` (`bench/`), one thing a process; here the streams are made, and the
//! tables.

mod meter;
mod options;
mod row;
mod streams;
mod table;
mod threads;

use super::{folder, machine, sentence};
use crate::{Failure, packages, shell};
use backtrail_tests::real::{self, Recorder};
use meter::{Binaries, Meter};
pub use options::Options;
use std::fs;
use std::path::{Path, PathBuf};
use streams::Streams;

/// Makes the streams that are not there yet, measures, prints.
pub fn run(options: &Options, backtrail: &Path) -> Result<(), Failure> {
    let names: Vec<&str> = streams::STREAMS.iter().map(|stream| stream.name).collect();
    packages::ensure(&[
        &packages::of_programs(&names),
        packages::ORACLE,
        packages::BENCH,
        packages::COUNT,
    ])?;
    let folder = folder(match options.quick {
        true => "bench/decode-quick",
        false => "bench/decode",
    })?;
    let recorder = Recorder {
        binary: backtrail.to_path_buf(),
        engine: None,
        history: real::History::Full,
    };
    let meter = Meter::new(Binaries::build(backtrail)?)?;
    let mut rows = Vec::new();
    for stream in streams::STREAMS
        .iter()
        .filter(|stream| options.wants(stream.name))
    {
        let Some(program) = real::find(stream.name) else {
            continue;
        };
        if let Some(missing) = real::missing(program) {
            eprintln!("{}: skipped: no {missing}", stream.name);
            continue;
        }
        eprintln!("{}: load {}", stream.name, machine::load());
        let streams = Streams {
            folder: folder.join(stream.name),
            program,
            size: if options.quick { stream.quick } else { stream.size },
            recorder: &recorder,
            fresh: options.fresh,
        };
        let row =
            row::measure(&streams, &meter, options).map_err(|error| format!("{}: {error}", stream.name))?;
        if options.json {
            println!("{row}");
        }
        rows.push(row);
    }
    let results: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let file = folder.join("results.json");
    fs::write(&file, results).map_err(|error| sentence("the results", &error))?;
    if !options.json {
        println!("{}", table::markdown(options, &rows));
    }
    Ok(())
}

impl Binaries {
    /// The release builds of what measures.
    fn build(backtrail: &Path) -> Result<Self, Failure> {
        // The analyzer has its caches or has them not by a feature: it takes two builds, and the first is put aside.
        let uncached = shell::target().join("release/backtrail-bench-uncached");
        let built = build_bench("edges")?;
        fs::copy(&built, &uncached).map_err(|error| sentence("a copy of the benchmark", &error))?;
        Ok(Self {
            bench: build_bench("edges-cache")?,
            uncached,
            backtrail: backtrail.to_path_buf(),
        })
    }
}

fn build_bench(features: &str) -> Result<PathBuf, Failure> {
    let mut build = shell::cargo();
    let words = ["build", "--release", "--package", "backtrail-bench", "--features"];
    shell::run(build.args(words).arg(features))?;
    let binary = shell::target().join("release/backtrail-bench");
    binary
        .canonicalize()
        .map_err(|error| format!("cannot find {}: {error}", binary.display()))
}
