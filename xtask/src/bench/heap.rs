//! `cargo xtask bench heap`: the cost of `record --heap` beside plain recording.
//!
//! Each round runs each program natively, recorded, and recorded with heap events, one after the
//! other. So a slow minute of the machine is in all three.

use super::{folder, machine, sentence};
use crate::{Failure, shell};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The folder of the sources.
const SOURCES: &str = "tests/fixtures/workloads";
/// The programs: the source, its argument, the description, and the number of calls of `malloc` and
/// `free`.
const PROGRAMS: [(&str, &str, &str, f64); 2] = [
    ("blocks.c", "3000", "blocks, C: only `malloc` and `free`", 6e6),
    ("compute.c", "100", "compute, C", 0.0),
];
/// The number of rounds.
const ROUNDS: usize = 7;

/// The ways to run a program.
const MODES: [Option<&[&str]>; 3] = [None, Some(&["--full"]), Some(&["--full", "--heap"])];

/// Builds, measures, prints.
pub fn run(backtrail: &Path) -> Result<(), Failure> {
    let folder = folder("bench/heap")?;
    for (source, ..) in PROGRAMS {
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o"]).arg(program_of(&folder, source));
        shell::run(compiler.arg(Path::new(SOURCES).join(source)))?;
    }
    println!(
        "`cargo xtask bench heap` on {}; load at the start {}. Medians of {ROUNDS} rounds, wall clock of the \
         whole command.\n",
        machine::line(),
        machine::load()
    );
    println!("| program | native s | record s | record --heap s | --heap, × record | ns per call more |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (source, argument, description, calls) in PROGRAMS {
        let program = program_of(&folder, source);
        let bundle = folder.join("bundle");
        let mut seconds: [Vec<f64>; 3] = Default::default();
        let mut ratios = Vec::new();
        let mut expected = None;
        for _ in 0..ROUNDS {
            let mut round = [0.0; 3];
            for ((mode, all), of_round) in MODES.iter().zip(&mut seconds).zip(&mut round) {
                let (time, output) = timed(&mut command(backtrail, *mode, &bundle, &program, argument))?;
                if *expected.get_or_insert_with(|| output.clone()) != output {
                    return Err(format!("{source}: the output differs under the recorder"));
                }
                all.push(time);
                *of_round = time;
            }
            ratios.push(round[2] / round[1]);
        }
        let [native, plain, heap] = seconds.map(median);
        let per_call = match calls > 0.0 {
            true => format!("{:.0}", (heap - plain) * 1e9 / calls),
            false => "-".to_owned(),
        };
        println!(
            "| {description} | {native:.2} | {plain:.2} ({:.1}×) | {heap:.2} ({:.1}×) | {:.2} | {per_call} |",
            plain / native,
            heap / native,
            median(ratios)
        );
    }
    Ok(())
}

/// Returns the path of the program of a source.
fn program_of(folder: &Path, source: &str) -> PathBuf {
    folder.join(source.trim_end_matches(".c"))
}

/// Returns the command of a mode.
fn command(
    backtrail: &Path,
    mode: Option<&[&str]>,
    bundle: &Path,
    program: &Path,
    argument: &str,
) -> Command {
    let Some(options) = mode else {
        let mut command = Command::new(program);
        command.arg(argument);
        return command;
    };
    let mut command = Command::new(backtrail);
    command.arg("record").args(options).args(["--overwrite", "-o"]);
    command.arg(bundle).args([OsStr::new("--"), program.as_os_str()]);
    command.arg(argument);
    command
}

/// Returns the seconds that a command took, and its standard output.
fn timed(command: &mut Command) -> Result<(f64, Vec<u8>), Failure> {
    let begin = Instant::now();
    let output = command.stderr(Stdio::null()).output();
    let output = output.map_err(|error| sentence("a run", &error))?;
    let seconds = begin.elapsed().as_secs_f64();
    match output.status.success() {
        true => Ok((seconds, output.stdout)),
        false => Err(format!("a run failed: {}", output.status)),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
