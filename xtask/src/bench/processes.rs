//! `cargo xtask bench processes`: many and short processes, recorded with and without translations
//! of earlier recordings, beside qemu and valgrind.
//!
//! Each round runs all modes of a program one after the other. So a slow minute of the machine is
//! in all of them.

use super::{folder, machine, sentence, version};
use crate::{Failure, packages, shell};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The number of rounds.
const ROUNDS: usize = 5;
/// Ten lines for a compiler.
const SOURCE: &str = "\
#include <stdio.h>
#include <stdlib.h>
struct pair { int x, y; };
static int area(struct pair *p) { return p->x * p->y; }
int main(int argc, char **argv) {
  struct pair p = { argc, 3 };
  for (int i = 0; i < argc; i++) p.y += atoi(argv[i]);
  printf(\"%d\\n\", area(&p));
  return 0;
}
";
/// A script with 300 substitutions, each of which starts three processes of the shell.
const SCRIPT: &str = "for i in $(seq 300); do x=$(echo $i | (read a; echo $((a*2)))); done; echo $x\n";

/// A row of the table.
struct Program {
    description: &'static str,
    words: Vec<OsString>,
    /// `qemu-x86_64` does not follow `execve`.
    executes: bool,
}

/// The ways to run a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Native,
    /// Recorded without kept translations.
    Cold,
    /// Recorded after a recording of the same work.
    Warm,
    Qemu,
    Valgrind,
}

impl Mode {
    const ALL: [Self; 5] = [Self::Native, Self::Cold, Self::Warm, Self::Qemu, Self::Valgrind];
}

/// Measures and prints.
pub fn run(backtrail: &Path) -> Result<(), Failure> {
    packages::ensure(&[packages::BENCH])?;
    let folder = folder("bench/processes")?;
    let failed = |error| sentence("the bench folder", &error);
    fs::write(folder.join("ten.c"), SOURCE).map_err(failed)?;
    fs::write(folder.join("shells.sh"), SCRIPT).map_err(failed)?;
    println!(
        "`cargo xtask bench processes` on {}; load at the start {}. Medians of {ROUNDS} rounds: wall clock of \
         the whole command, and processor time in parentheses.\n",
        machine::line(),
        machine::load()
    );
    println!(
        "| program | native s | cold s | warm s | qemu s | valgrind s | cold, × native | warm, × native |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for program in programs(&folder)? {
        measure(backtrail, &folder, &program)?;
    }
    println!("\nPeers: {}; {}.", about("qemu-x86_64"), about("valgrind"));
    Ok(())
}

fn about(peer: &str) -> String {
    version(peer).unwrap_or_else(|| format!("no {peer}"))
}

fn programs(folder: &Path) -> Result<Vec<Program>, Failure> {
    let source = folder.join("ten.c").into_os_string();
    let asked = Command::new("gcc").arg("-print-prog-name=cc1").output();
    let asked = asked.map_err(|error| sentence("gcc", &error))?;
    let cc1 = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    // The compiler itself does not know where headers are.
    let mut preprocess = Command::new("gcc");
    preprocess
        .arg("-E")
        .arg(&source)
        .arg("-o")
        .arg(folder.join("ten.i"));
    shell::run(&mut preprocess)?;
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let output = |name: &str| folder.join(name).into_os_string();
    Ok(vec![
        Program {
            description: "`gcc -c`, 10 lines (3 programs)",
            words: [words(&["gcc", "-c", "-o"]), vec![output("ten.o"), source.clone()]].concat(),
            executes: true,
        },
        Program {
            description: "its compiler `cc1` alone",
            words: [
                words(&[&cc1, "-quiet", "-fpreprocessed", "-o"]),
                vec![output("ten.s"), output("ten.i")],
            ]
            .concat(),
            executes: false,
        },
        Program {
            description: "`bash`, 300 substitutions (900 processes)",
            words: [words(&["bash"]), vec![output("shells.sh")]].concat(),
            executes: false,
        },
    ])
}

/// Prints the row of a program.
fn measure(backtrail: &Path, folder: &Path, program: &Program) -> Result<(), Failure> {
    let mut times: Vec<[Vec<f64>; 2]> = vec![Default::default(); Mode::ALL.len()];
    let mut expected = None;
    for _ in 0..ROUNDS {
        for (mode, [wall, processor]) in Mode::ALL.into_iter().zip(&mut times) {
            let Some(mut command) = command(mode, backtrail, folder, program)? else {
                continue;
            };
            let (seconds, used, output) = timed(&mut command)?;
            if *expected.get_or_insert_with(|| output.clone()) != output {
                return Err(format!("{}: the output differs", program.description));
            }
            wall.push(seconds);
            processor.push(used);
        }
    }
    let medians: Vec<[f64; 2]> = times.into_iter().map(|times| times.map(median)).collect();
    let cells = medians.iter().map(|[wall, used]| match wall.is_nan() {
        true => "-".to_owned(),
        false => format!("{wall:.2} ({used:.2})"),
    });
    let cells: Vec<String> = cells.collect();
    let ratio = |mode: Mode| {
        let of = |mode: Mode| medians.get(mode as usize).map_or(f64::NAN, |[wall, _]| *wall);
        format!("{:.1}", of(mode) / of(Mode::Native))
    };
    println!(
        "| {} | {} | {} | {} |",
        program.description,
        cells.join(" | "),
        ratio(Mode::Cold),
        ratio(Mode::Warm)
    );
    Ok(())
}

/// Returns the command of a mode, or `None` if the mode cannot run the program here.
fn command(
    mode: Mode,
    backtrail: &Path,
    folder: &Path,
    program: &Program,
) -> Result<Option<Command>, Failure> {
    let cache = folder.join("cache");
    let (peer, options): (PathBuf, &[&str]) = match mode {
        Mode::Native => {
            let mut words = program.words.iter();
            let mut command = Command::new(words.next().cloned().unwrap_or_default());
            command.args(words);
            return Ok(Some(command));
        }
        Mode::Cold | Mode::Warm => (backtrail.to_owned(), &["record", "--overwrite", "-o"]),
        Mode::Qemu if program.executes => return Ok(None),
        Mode::Qemu => ("qemu-x86_64".into(), &[]),
        Mode::Valgrind => ("valgrind".into(), &["-q", "--tool=none", "--trace-children=yes"]),
    };
    if !shell::in_path(&peer.to_string_lossy()) && !peer.is_file() {
        return Ok(None);
    }
    if mode == Mode::Cold && cache.exists() {
        fs::remove_dir_all(&cache).map_err(|error| sentence("the translations", &error))?;
    }
    let words = match mode {
        // qemu takes a path.
        Mode::Qemu => in_path(&program.words)?,
        _ => program.words.clone(),
    };
    let mut command = Command::new(peer);
    command.env("XDG_CACHE_HOME", cache).args(options);
    if matches!(mode, Mode::Cold | Mode::Warm) {
        let bundle = folder.join("bundle");
        if bundle.exists() {
            fs::remove_dir_all(&bundle).map_err(|error| sentence("the bundle", &error))?;
        }
        command.arg(bundle).arg("--");
    }
    command.args(words);
    Ok(Some(command))
}

/// Returns the words with the path of the program.
fn in_path(words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let [program, arguments @ ..] = words else {
        return Ok(Vec::new());
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let found = folders
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    let found = found.ok_or_else(|| format!("{} is not in PATH", program.display()))?;
    Ok([&[found.into_os_string()], arguments].concat())
}

/// Returns the seconds and the processor time that a command took, and its standard output.
fn timed(command: &mut Command) -> Result<(f64, f64, Vec<u8>), Failure> {
    let used = || getrusage(UsageWho::RUSAGE_CHILDREN).map(|usage| processor_time(&usage));
    let failed = |error| format!("cannot read processor time: {error}");
    let before = used().map_err(failed)?;
    let begin = Instant::now();
    let output = command.stderr(Stdio::null()).output();
    let output = output.map_err(|error| sentence("a run", &error))?;
    let seconds = begin.elapsed().as_secs_f64();
    let used = used().map_err(failed)? - before;
    match output.status.success() {
        true => Ok((seconds, used, output.stdout)),
        false => Err(format!("a run failed: {}", output.status)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure of three digits")]
fn processor_time(usage: &Usage) -> f64 {
    let parts = [usage.user_time(), usage.system_time()];
    let seconds = parts.map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    seconds.iter().sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
