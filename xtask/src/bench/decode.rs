//! `cargo xtask bench decode`: decoding speeds of our engines and others on real programs.
//!
//! `backtrail-bench` (`bench/`) runs one measurement per process. This module makes the streams and
//! the tables.

mod meter;
mod options;
mod row;
mod streams;
mod table;
mod threads;

use super::{folder, machine, sentence};
use crate::{Failure, packages};
use backtrail_tests::real::{self, Recorder};
use meter::{Binaries, Meter};
pub use options::DecodeOptions;
use std::fs;
use std::path::Path;
use streams::{Purpose, Streams};

/// Makes the streams that are not there yet, measures, prints.
pub fn run(options: &DecodeOptions, backtrail: &Path) -> Result<(), Failure> {
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
    let (mut rows, mut wholes) = (Vec::new(), Vec::new());
    for stream in streams::STREAMS
        .iter()
        .filter(|stream| options.wants(stream.name))
    {
        let Some(program) = real::find(stream.name) else {
            continue;
        };
        if let Some(missing) = real::missing(program) {
            eprintln!("{}: skipped, because {missing} is missing", stream.name);
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
        rows.push(row);
        wholes.push(streams.bundle(Purpose::Whole)?);
    }
    if options.measures_threads() {
        let measured = threads::measure(&meter, &wholes, options);
        for (row, threads) in rows.iter_mut().zip(measured) {
            row["threads"] = threads.unwrap_or_else(row::failed);
        }
    }
    let results: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let file = folder.join("results.json");
    fs::write(&file, &results).map_err(|error| sentence("the results", &error))?;
    match options.json {
        true => print!("{results}"),
        false => println!("{}", table::markdown(options, &rows)),
    }
    Ok(())
}
