//! A slice of fuzzing: one target with one seed, in a process of its own at the lowest priority.

use super::targets::{Runner, Target};
use crate::node::Node;
use crate::{Failure, readers, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The script that mutates links.
const LINKS: &str = "vscode-extension/scripts/fuzz-links.mjs";
/// A slice that takes so much longer than asked hangs, unless it waits for a processor. The harness
/// itself ends one that spends 20 s on a case.
const GRACE: Duration = Duration::from_secs(900);

/// The report of a slice at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceReport {
    pub cases: u64,
    pub accepted: u64,
    pub slowest: Duration,
    /// The most memory for a case.
    pub kib: u64,
}

/// The result of a slice.
#[derive(Debug)]
pub struct Outcome {
    pub took: Duration,
    /// The finding of a failed slice, and the command that repeats it.
    pub result: Result<SliceReport, String>,
}

/// The programs that slices run.
pub struct Programs {
    hostile: PathBuf,
    node: Option<PathBuf>,
}

impl Programs {
    /// Builds the programs of these targets: the harness, the binary, and Node.js.
    pub fn build(targets: &[Target]) -> Result<Self, Failure> {
        let wants = |links: bool| {
            targets
                .iter()
                .any(|target| (target.runner == Runner::Links) == links)
        };
        let hostile = match wants(false) {
            true => {
                shell::run(shell::cargo().args(["build", "--package", "backtrail"]))?;
                hostile()?
            }
            false => PathBuf::new(),
        };
        let node = if wants(true) {
            Some(Node::among(&readers::python()?).program())
        } else {
            None
        };
        Ok(Self { hostile, node })
    }

    /// Runs a slice. `None`: `stop` came.
    pub fn run(
        &self,
        target: &Target,
        seed: u64,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<Option<Outcome>, Failure> {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]);
        match (target.runner, &self.node) {
            (Runner::Test(path), _) => {
                // Where cargo runs it.
                command.arg(&self.hostile).args([path, "--exact", "--nocapture"]);
                command.current_dir("tests");
            }
            (Runner::Links, Some(node)) => {
                command.arg(node).arg(LINKS);
            }
            (Runner::Links, None) => {
                return Err("Node.js is missing for the target links: run `cargo xtask readers`".to_owned());
            }
        }
        command
            .env("BACKTRAIL_FUZZ_SEED", seed.to_string())
            .env("BACKTRAIL_FUZZ_SECONDS", time.as_secs().max(1).to_string())
            .stdin(Stdio::null());
        let began = Instant::now();
        let output = tempfile::tempfile().and_then(|file| Ok((file.try_clone()?, file.try_clone()?, file)));
        let (out, errors, mut read) = output.map_err(|error| format!("cannot store the output: {error}"))?;
        let child = command.stdout(out).stderr(errors).spawn();
        let mut child = child.map_err(|error| format!("cannot start {}: {error}", target.name))?;
        let ended = wait(&mut child, time + GRACE, stop)?;
        let Some(succeeded) = ended else { return Ok(None) };
        let mut said = Vec::new();
        std::io::Seek::rewind(&mut read)
            .and_then(|()| std::io::Read::read_to_end(&mut read, &mut said))
            .map_err(|error| format!("cannot read what {} said: {error}", target.name))?;
        let said = String::from_utf8_lossy(&said);
        let result = match report(target.name, &said).filter(|_| succeeded) {
            Some(report) => Ok(report),
            None => Err(keep(target, seed, &said, self.node.as_deref())),
        };
        Ok(Some(Outcome {
            took: began.elapsed(),
            result,
        }))
    }
}

/// Builds the harness; the path of its program.
fn hostile() -> Result<PathBuf, Failure> {
    let mut cargo = shell::cargo();
    cargo.args([
        "test",
        "--package",
        "backtrail-tests",
        "--test",
        "hostile",
        "--no-run",
    ]);
    let built = cargo
        .arg("--message-format=json")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let messages = String::from_utf8_lossy(&built.stdout);
    let program = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "hostile";
        let path = message["executable"].as_str().filter(|_| is_it)?;
        std::path::absolute(path).ok()
    });
    program
        .filter(|_| built.status.success())
        .ok_or_else(|| "the harness of hostile input cannot be built".to_owned())
}

/// Waits for the end; whether it succeeded. `None`: `stop` came, and it was ended.
fn wait(child: &mut Child, limit: Duration, stop: &AtomicBool) -> Result<Option<bool>, Failure> {
    let began = Instant::now();
    loop {
        let ended = child.try_wait();
        if let Some(status) = ended.map_err(|error| format!("cannot wait for a slice: {error}"))? {
            // Ctrl-C ends it, too.
            return Ok((!stop.load(Ordering::Relaxed)).then_some(status.success()));
        }
        let stopped = stop.load(Ordering::Relaxed);
        if stopped || (began.elapsed() > limit && !is_starved(child.id(), limit)) {
            let _ = child.kill();
            let _ = child.wait();
            return Ok((!stopped).then_some(false));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns whether a process could run, but got less processor time than `limit`, because others
/// have the processors. Source: `/proc/PID/stat` in proc(5), with the state and ticks of 10 ms.
fn is_starved(pid: u32, limit: Duration) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return false;
    };
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok());
    let used = ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0);
    fields.first() == Some(&"R") && Duration::from_millis(10 * used) < limit
}

/// Reads the line `NAME: N cases, M accepted; at most T and K KiB a case`.
fn report(name: &str, said: &str) -> Option<SliceReport> {
    let line = said.lines().find_map(|line| {
        let at = line.find(&format!("{name}: "))?;
        line.get(at + name.len() + 2..)?
            .contains(" cases, ")
            .then(|| line.get(at..))?
    })?;
    let rest = line.strip_prefix(name)?.strip_prefix(": ")?;
    let (cases, rest) = rest.split_once(" cases, ")?;
    let (accepted, rest) = rest.split_once(" accepted; at most ")?;
    let (time, rest) = rest.split_once(" and ")?;
    let (kib, _) = rest.split_once(" KiB a case")?;
    Some(SliceReport {
        cases: cases.parse().ok()?,
        accepted: accepted.parse().ok()?,
        slowest: duration(time)?,
        kib: kib.parse().ok()?,
    })
}

/// A time as `Debug` writes it.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| character.is_alphabetic() || character == 'µ')?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

/// Keeps the case that failed, and says how to have it again.
fn keep(target: &Target, seed: u64, said: &str, node: Option<&Path>) -> String {
    let folder = shell::target().join("fuzz");
    let case = said.lines().find_map(|line| line.split_once("the case is "));
    let case = case.map(|(_, path)| PathBuf::from(path.trim()));
    let kept = folder.join(format!("{}-{seed}", target.name));
    let copied = fs::create_dir_all(&folder).and_then(|()| match &case {
        Some(case) => fs::copy(case, &kept).map(drop),
        None => Ok(()),
    });
    let log = kept.with_extension("log");
    let _ = fs::write(&log, said);
    let why = said.lines().find(|line| {
        ["panicked", "takes longer", "bytes of memory", "the case is"]
            .iter()
            .any(|word| line.contains(word))
    });
    let why = why.unwrap_or("it ended without a report").trim();
    let node = absolute(node.unwrap_or(Path::new("node")));
    let again = match (copied.is_ok() && case.is_some(), target.runner) {
        (true, Runner::Test(path)) => format!("BACKTRAIL_FUZZ_CASE={} {}", absolute(&kept), command(path)),
        (false, Runner::Test(path)) => format!("BACKTRAIL_FUZZ_SEED={seed} {}", command(path)),
        (true, Runner::Links) => format!("BACKTRAIL_FUZZ_CASE={} {node} {LINKS}", absolute(&kept)),
        (false, Runner::Links) => format!("BACKTRAIL_FUZZ_SEED={seed} {node} {LINKS}"),
    };
    format!(
        "{} with seed {seed}: {why}\n    what it said: {}\n    again: {again}",
        target.name,
        log.display()
    )
}

/// The variable is read in the folder of the tests.
fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}

fn command(path: &str) -> String {
    format!("cargo test -p backtrail-tests --test hostile {path} -- --exact --nocapture")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_process_is_starved_until_it_had_its_time() {
        let mut busy = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        while !is_starved(busy.id(), Duration::from_secs(60)) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_starved(busy.id(), Duration::ZERO));
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(!is_starved(busy.id(), Duration::from_secs(60)));
        assert!(!is_starved(u32::MAX, Duration::from_secs(60)));
    }

    #[test]
    fn the_line_of_the_harness_is_read() {
        let said = "running 1 test\ntest targets::decoder ... decoder: 9216 cases, 12 accepted; at most 1.25ms and 310 KiB a case\nok";
        let expected = SliceReport {
            cases: 9216,
            accepted: 12,
            slowest: Duration::from_micros(1250),
            kib: 310,
        };
        assert_eq!(report("decoder", said), Some(expected));
        assert_eq!(report("elf", said), None);
        for (text, nanos) in [("3ns", 3), ("2.5µs", 2500), ("1s", 1_000_000_000)] {
            assert_eq!(duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(duration("7 parsecs"), None);
    }
}
