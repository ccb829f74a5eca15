//! `cargo xtask bench programs`: every real program, compared with its run without the recorder.

use super::{Options, machine, sentence};
use crate::{Failure, packages};
use backtrail_tests::real::{self, Mask, Measurement, PROGRAMS};
use std::path::Path;
use std::time::Duration;

/// For each run of anything, decoding included.
const LIMIT: Duration = Duration::from_secs(900);

/// Measures the rows and prints the table; fails when a program differs under the recorder.
pub fn run(options: &Options, binary: &Path) -> Result<(), Failure> {
    let names: Vec<&str> = PROGRAMS
        .iter()
        .filter(|program| options.wants(program))
        .map(|program| program.name)
        .collect();
    packages::ensure(&[&packages::of_programs(&names)])?;
    let recorder = options.recorder(binary);
    let mut measured: Vec<Measurement> = Vec::new();
    let mut failed = Vec::new();
    for program in PROGRAMS.iter().filter(|program| options.wants(program)) {
        if let Some(missing) = real::missing(program) {
            eprintln!("{}: skipped, because {missing} is missing", program.name);
            continue;
        }
        let folder = tempfile::tempdir().map_err(|error| sentence("a temporary folder", &error))?;
        eprintln!("{}: load {}", program.name, machine::load());
        match real::measure(program, &recorder, options.size(program), folder.path(), LIMIT) {
            Ok(measurement) => {
                let problems = measurement.problems.iter();
                failed.extend(problems.map(|problem| format!("{}: {problem}", program.name)));
                eprint!("{}", real::row(&measurement));
                measured.push(measurement);
            }
            Err(error) => {
                eprintln!("{}: {error}", program.name);
                failed.push(format!("{}: {error}", program.name));
            }
        }
    }
    println!(
        "`cargo xtask bench programs {}` on {}.\n\n{}",
        options.shown(),
        machine::line(),
        real::markdown(&measured)
    );
    for program in PROGRAMS.iter().filter(|program| options.wants(program)) {
        if !program.masks.is_empty() {
            let masks: Vec<String> = program.masks.iter().copied().map(Mask::about).collect();
            println!("- {}: not compared: {}", program.name, masks.join(", "));
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("different under the recorder:\n{}", failed.join("\n")))
    }
}
