//! `bench profile`: what sampling all processes of a busy machine costs, beside perf.

use super::{folder, machine, sentence};
use crate::Failure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The work of one processor: calls through several levels, and many short-lived objects.
pub(super) const WORK: &str = "
import json, re
def parse(depth):
    return json.loads('[1, 2, {\"a\": \"b\"}]') if depth == 0 else parse(depth - 1)
def match(text):
    return re.sub('[aeiou]+', '-', text)
while True:
    data = [parse(10) for _ in range(200)]
    match(json.dumps(data)); sorted(range(5000), key=lambda n: n * 7919 % 5003)
";

/// A way of recording.
struct Recorder {
    name: &'static str,
    command: fn(&Path, &Path) -> Command,
    /// Reads the numbers of samples and of lost records.
    counts: fn(&Path, &str) -> Option<(u64, u64)>,
}

const RECORDERS: [Recorder; 5] = [
    Recorder {
        name: "backtrail, 99 Hz",
        command: |backtrail, output| ours(backtrail, output, "99", "1"),
        counts: |_, stdout| counts_of_ours(stdout),
    },
    Recorder {
        name: "backtrail, copies, 99 Hz",
        command: |backtrail, output| {
            let mut command = ours(backtrail, output, "99", "1");
            command.args(["--stacks", "copy"]);
            command
        },
        counts: |_, stdout| counts_of_ours(stdout),
    },
    Recorder {
        name: "perf, dwarf, 99 Hz",
        command: |_, output| perf(output, "99", &["--call-graph", "dwarf"]),
        counts: |output, _| counts_of_perf(output),
    },
    Recorder {
        name: "backtrail, 1000 Hz",
        command: |backtrail, output| ours(backtrail, output, "1000", "100"),
        counts: |_, stdout| counts_of_ours(stdout),
    },
    Recorder {
        name: "perf, frame pointers, 1000 Hz",
        command: |_, output| perf(output, "1000", &["--call-graph", "fp"]),
        counts: |output, _| counts_of_perf(output),
    },
];

/// The cost of a recording.
struct Cost {
    name: &'static str,
    /// Processor time in percent of all processors.
    percent: f64,
    /// The most resident memory in MiB.
    resident: f64,
    samples: u64,
    lost: u64,
    bytes: u64,
}

/// Keeps all processors busy, and records with each recorder for so long.
pub fn run(backtrail: &Path, seconds: u64) -> Result<(), Failure> {
    let folder = folder("bench/profile")?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut work = Vec::new();
    for _ in 0..processors {
        let mut python = Command::new("python3");
        python.args(["-c", WORK]).stdout(Stdio::null());
        work.push(python.spawn().map_err(|error| sentence("python3", &error))?);
    }
    let costs: Result<Vec<Cost>, Failure> = RECORDERS
        .iter()
        .map(|recorder| measure(recorder, backtrail, &folder, Duration::from_secs(seconds)))
        .collect();
    for mut process in work {
        let _ = process.kill();
        let _ = process.wait();
    }
    println!("{}", table(&costs?, seconds, processors));
    Ok(())
}

fn ours(backtrail: &Path, output: &Path, frequency: &str, budget: &str) -> Command {
    let mut command = Command::new(backtrail);
    command.args(["profile", "record", "--all", "--json", "--overwrite"]);
    command
        .args(["--freq", frequency, "--cpu-budget", budget, "-o"])
        .arg(output);
    command
}

fn perf(output: &Path, frequency: &str, options: &[&str]) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", frequency]);
    // Reading the build ids at the end is no part of recording.
    command.args(options).args(["-B", "-N", "-o"]).arg(output);
    command
}

fn measure(recorder: &Recorder, backtrail: &Path, folder: &Path, length: Duration) -> Result<Cost, Failure> {
    let output: PathBuf = folder.join("recording");
    let mut command = (recorder.command)(backtrail, &output);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| sentence(recorder.name, &error))?;
    let began = Instant::now();
    std::thread::sleep(length);
    let pid = child.id();
    let (used, resident) = (processor_time(pid)?, resident(pid)?);
    let elapsed = began.elapsed();
    let stdout = stop(child).map_err(|error| sentence(recorder.name, &error))?;
    let (samples, lost) = (recorder.counts)(&output, &stdout)
        .ok_or_else(|| format!("{} does not say how many samples it took", recorder.name))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Cost {
        name: recorder.name,
        percent: 100.0 * used.as_secs_f64() / elapsed.as_secs_f64() / processors as f64,
        resident,
        samples,
        lost,
        bytes: fs::metadata(&output).map_or(0, |metadata| metadata.len()),
    })
}

/// Ends a recording with SIGINT, and returns what it printed.
fn stop(child: Child) -> std::io::Result<String> {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the processor time of a process with all its threads, from `/proc/PID/stat`.
fn processor_time(pid: u32) -> Result<Duration, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let stat = stat.map_err(|error| sentence("the recorder", &error))?;
    let ticks = ticks(&stat).ok_or("/proc/PID/stat has another format")?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// Returns `utime` and `stime` of proc_pid_stat(5).
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Returns the most memory that was resident, in MiB.
fn resident(pid: u32) -> Result<f64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.map_err(|error| sentence("the recorder", &error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kibibytes.unwrap_or(f64::NAN) / 1024.0)
}

fn counts_of_ours(stdout: &str) -> Option<(u64, u64)> {
    let report: Value = serde_json::from_str(stdout).ok()?;
    Some((report["samples"].as_u64()?, report["lost"].as_u64()?))
}

/// Reads what `perf report --stats` counts.
fn counts_of_perf(output: &Path) -> Option<(u64, u64)> {
    let mut perf = Command::new("perf");
    perf.args(["report", "--stats", "-i"]).arg(output);
    let text = perf.stderr(Stdio::null()).output().ok()?.stdout;
    parse_stats(&String::from_utf8_lossy(&text))
}

fn parse_stats(text: &str) -> Option<(u64, u64)> {
    let count = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.trim_start_matches([' ', ':'])
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    Some((
        count("SAMPLE events")?,
        count("LOST_SAMPLES events")
            .or_else(|| count("LOST events"))
            .unwrap_or(0),
    ))
}

fn table(costs: &[Cost], seconds: u64, processors: usize) -> String {
    let mut text = format!(
        "`cargo xtask bench profile --seconds {seconds}` on {}; load at the end {}. {processors} Python programs keep all \
         processors busy.\n\n\
         | recorder | processor time | resident MiB | samples | lost | bytes a sample |\n|---|---:|---:|---:|---:|---:|\n",
        machine::line(),
        machine::load()
    );
    for cost in costs {
        let each = cost.bytes as f64 / cost.samples.max(1) as f64;
        let _ = writeln!(
            text,
            "| {} | {:.2} % | {:.0} | {} | {} | {each:.1} |",
            cost.name, cost.percent, cost.resident, cost.samples, cost.lost
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_processes_are_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 12 30 0 0 20 0 1 0 5 1 1";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (x) S 1"), None);
    }

    #[test]
    fn counts_of_perf_are_read() {
        let text = "Aggregated stats:\n           TOTAL events:       1500\n          SAMPLE events:       1198  (79.8%)\n    LOST_SAMPLES events:          2  ( 0.2%)\n";
        assert_eq!(parse_stats(text), Some((1198, 2)));
        assert_eq!(parse_stats("SAMPLE events: 7\n"), Some((7, 0)));
    }
}
