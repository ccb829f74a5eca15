//! `bench symbolize`: names, lines and inlined calls of 20 000 addresses, beside other symbolizers.

use super::{folder, machine, sentence};
use crate::{Failure, shell};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number of addresses, each of another function or line.
const ADDRESSES: usize = 20_000;
/// The number of times that all symbolizers run, one after the other.
const ROUNDS: usize = 5;
/// Crates that install a symbolizer, with their features.
const CRATES: [(&str, &[&str]); 2] = [("addr2line", &["--features", "bin"]), ("blazecli", &[])];

/// A symbolizer.
struct Symbolizer {
    name: &'static str,
    /// Its command for a file. `true`: it reads addresses from its input, one a line. `false`: it
    /// takes them as arguments.
    command: fn(&Programs, &Path) -> (Command, bool),
    /// The number of frames in what it printed.
    frames: fn(&str) -> usize,
}

/// The programs that are measured.
struct Programs {
    ours: PathBuf,
    peers: PathBuf,
}

const SYMBOLIZERS: [Symbolizer; 4] = [
    Symbolizer {
        name: "ours",
        command: |programs, binary| (with(&programs.ours, &[], binary, &[]), true),
        frames: |text| text.lines().filter(|line| !line.is_empty()).count(),
    },
    Symbolizer {
        name: "llvm-symbolizer 19",
        command: |_, binary| {
            let program = Path::new("/usr/lib/llvm-19/bin/llvm-symbolizer");
            (with(program, &["--obj"], binary, &[]), true)
        },
        // Two lines for each frame.
        frames: |text| text.lines().filter(|line| !line.is_empty()).count() / 2,
    },
    Symbolizer {
        name: "addr2line (crate)",
        command: |programs, binary| {
            let program = programs.peers.join("addr2line");
            (with(&program, &["-f", "-i", "-C", "-e"], binary, &[]), true)
        },
        frames: |text| text.lines().count() / 2,
    },
    Symbolizer {
        name: "blazesym",
        command: |programs, binary| {
            let program = programs.peers.join("blazecli");
            (
                with(&program, &["symbolize", "elf", "--path"], binary, &[]),
                false,
            )
        },
        frames: |text| text.lines().count(),
    },
];

fn with(program: &Path, before: &[&str], binary: &Path, after: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(before).arg(binary).args(after);
    command
}

/// Builds the binary and the peers, and measures.
pub fn run() -> Result<(), Failure> {
    let folder = folder("bench/symbolize")?;
    let binary = binary(&folder)?;
    let programs = programs(&folder)?;
    let (text, debug) = sections(&binary)?;
    let addresses = addresses(text);
    let list = folder.join("addresses");
    let lines: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    fs::write(&list, lines).map_err(|error| sentence("the addresses", &error))?;
    let mut times = vec![Vec::new(); SYMBOLIZERS.len()];
    let mut frames = vec![0; SYMBOLIZERS.len()];
    for _ in 0..ROUNDS {
        for (index, symbolizer) in SYMBOLIZERS.iter().enumerate() {
            let output = folder.join("output");
            let time = time(symbolizer, &programs, &binary, &list, &addresses, &output)?;
            if let (Some(times), Some(frames)) = (times.get_mut(index), frames.get_mut(index)) {
                times.push(time);
                let printed = fs::read(&output).map_err(|error| sentence("the output", &error))?;
                *frames = (symbolizer.frames)(&String::from_utf8_lossy(&printed));
            }
        }
    }
    println!("{}", table(&times, &frames, debug));
    Ok(())
}

/// Builds `backtrail` with all debug information.
fn binary(folder: &Path) -> Result<PathBuf, Failure> {
    let target = folder.join("target");
    let mut cargo = shell::cargo();
    cargo
        .args(["build", "--package", "backtrail", "--target-dir"])
        .arg(&target);
    shell::run(cargo.env("CARGO_PROFILE_DEV_DEBUG", "full"))?;
    Ok(target.join("debug/backtrail"))
}

fn programs(folder: &Path) -> Result<Programs, Failure> {
    let mut cargo = shell::cargo();
    cargo.args([
        "build",
        "--release",
        "--package",
        "backtrail-symbolizer",
        "--example",
        "addresses",
    ]);
    shell::run(&mut cargo)?;
    let peers = folder.join("peers");
    for (name, options) in CRATES {
        if !peers.join("bin").join(name).exists() {
            let mut cargo = shell::cargo();
            cargo
                .args(["install", "--quiet", "--locked", "--root"])
                .arg(&peers);
            shell::run(cargo.arg(name).args(options))?;
        }
    }
    Ok(Programs {
        ours: shell::target().join("release/examples/addresses"),
        peers: peers.join("bin"),
    })
}

/// Returns the start and the size of the code, and the bytes of debug information.
fn sections(binary: &Path) -> Result<((u64, u64), u64), Failure> {
    let path = binary.to_string_lossy();
    let text = shell::output("size", &["-A", "-d", &path]).ok_or("`size` of binutils is missing")?;
    parse_sections(&text).ok_or_else(|| format!("{path} has no code"))
}

/// Parses lines with the name, the size and the address of a section.
fn parse_sections(text: &str) -> Option<((u64, u64), u64)> {
    let section = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let numbers = (
            words.next()?.parse::<u64>().ok()?,
            words.next()?.parse::<u64>().ok()?,
        );
        Some((name, numbers))
    };
    let sections: Vec<_> = text.lines().filter_map(section).collect();
    let (_, (size, start)) = sections.iter().find(|(name, _)| name == ".text")?;
    let debug = sections.iter().filter(|(name, _)| name.starts_with(".debug_"));
    Some(((*start, *size), debug.map(|(_, (size, _))| size).sum()))
}

/// Returns addresses that are spread over the code, in no order.
fn addresses((start, size): (u64, u64)) -> Vec<u64> {
    let mut state: u64 = 1;
    let mut next = || {
        // Knuth's MMIX generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        start + (state >> 20) % size.max(1)
    };
    (0..ADDRESSES).map(|_| next()).collect()
}

/// Runs a symbolizer. Returns its time.
fn time(
    symbolizer: &Symbolizer,
    programs: &Programs,
    binary: &Path,
    list: &Path,
    addresses: &[u64],
    output: &Path,
) -> Result<Duration, Failure> {
    let failed = |error: std::io::Error| sentence(symbolizer.name, &error);
    let (mut command, reads_input) = (symbolizer.command)(programs, binary);
    match reads_input {
        true => command.stdin(File::open(list).map_err(failed)?),
        false => command.args(addresses.iter().map(|address| format!("{address:#x}"))),
    };
    let out = File::create(output).map_err(failed)?;
    let began = Instant::now();
    let status = command
        .stdout(out)
        .stderr(Stdio::null())
        .status()
        .map_err(failed)?;
    match status.success() {
        true => Ok(began.elapsed()),
        false => Err(format!("{} failed: {status}", symbolizer.name)),
    }
}

fn table(times: &[Vec<Duration>], frames: &[usize], debug: u64) -> String {
    let mut text = format!(
        "`cargo xtask bench symbolize` on {}; load at the end {}. {ADDRESSES} addresses of `backtrail` with {} MB of \
         DWARF; the time of the whole program, the best and the median of {ROUNDS} rounds in which all run.\n\n\
         | symbolizer | best s | median s | frames |\n|---|---:|---:|---:|\n",
        machine::line(),
        machine::load(),
        debug / 1_000_000
    );
    for ((symbolizer, times), frames) in SYMBOLIZERS.iter().zip(times).zip(frames) {
        let mut times = times.clone();
        times.sort_unstable();
        let seconds = |at: usize| times.get(at).map_or(f64::NAN, Duration::as_secs_f64);
        let (best, median) = (seconds(0), seconds(times.len() / 2));
        let _ = writeln!(
            text,
            "| {} | {best:.3} | {median:.3} | {frames} |",
            symbolizer.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read() {
        let text =
            "x  :\nsection  size  addr\n.text  100  4096\n.debug_info  7  0\n.debug_str  5  0\nTotal  112\n";
        assert_eq!(parse_sections(text), Some(((4096, 100), 12)));
        assert_eq!(parse_sections("x :\n"), None);
    }

    #[test]
    fn addresses_are_in_the_code() {
        let addresses = addresses((4096, 100));
        assert_eq!(addresses.len(), ADDRESSES);
        assert!(addresses.iter().all(|address| (4096..4196).contains(address)));
    }
}
