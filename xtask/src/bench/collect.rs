//! `cargo xtask bench collect`: a thousand crashes under the collector, on an idle and a loaded
//! machine, and the cost of the idle daemon.

use super::machine;
use crate::Failure;
use backtrail_tests::programs::Variant;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Crashes of the measured runs.
const CRASHES: usize = 1000;
/// Crashes for each way of attaching beside them.
const CRASHES_EACH: usize = 200;
/// How long the idle daemon is measured.
const IDLE: Duration = Duration::from_secs(30);
/// Pairs of runs with and without the daemon.
const PAIRS: usize = 15;

/// The crashing programs, in turn.
const KINDS: [&str; 6] = [
    "crash_null",
    "crash_abort",
    "crash_bus",
    "crash_ud2",
    "crash_div",
    "thread_crash",
];
/// Ways of attaching that may work, and none.
const ATTACH: [&str; 6] = [
    "btf-tracepoint",
    "fentry",
    "kprobe",
    "raw-tracepoint",
    "tracepoint",
    "perf-tracepoint",
];

/// Measures, and prints tables.
pub fn run(backtrail: &Path) -> Result<(), Failure> {
    let programs = KINDS
        .iter()
        .map(|name| backtrail_tests::built(name, Variant::Pie))
        .collect::<Result<Vec<PathBuf>, _>>()
        .map_err(|error| format!("cannot build the programs that crash: {error}"))?;
    println!(
        "`cargo xtask bench collect` on {}; load before {}.\n",
        machine::line(),
        machine::load()
    );
    println!(
        "| probe | machine | crashes | complete | reported: p50, p99, max (us) | delay of a sleeper: p50, p99, max (us) | read after: p50, p99 (ms) | kept: p50, p99 (ms) |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for loaded in [false, true] {
        crashes(backtrail, &programs, "auto", CRASHES, loaded)?;
    }
    for attach in ATTACH {
        for loaded in [false, true] {
            crashes(backtrail, &programs, attach, CRASHES_EACH, loaded)?;
        }
    }
    println!();
    idle(backtrail)?;
    pairs(backtrail)
}

/// One row.
fn crashes(
    backtrail: &Path,
    programs: &[PathBuf],
    attach: &str,
    count: usize,
    loaded: bool,
) -> Result<(), Failure> {
    let where_ = if loaded { "loaded" } else { "idle" };
    let settings = format!("[crash]\nattach = {attach:?}\n");
    let daemon = Daemon::start(backtrail, &settings)?;
    if !daemon.log().contains("crashes are reported by: ") {
        if !loaded {
            println!("| `{attach}` | | unavailable | | | | | |");
        }
        return Ok(());
    }
    let load = loaded.then(Load::start).transpose()?;
    let sleeper = Sleeper::start()?;
    for program in programs.iter().cycle().take(count) {
        quiet(Command::new(program))
            .status()
            .map_err(|error| error.to_string())?;
    }
    daemon.settle(count)?;
    let late = sleeper.stop();
    drop(load);
    let listed = daemon.list()?;
    let complete = listed.iter().filter(|crash| crash["complete"] == true).count();
    let probe = listed
        .first()
        .map_or("none", |crash| crash["probe"].as_str().unwrap_or("none"));
    println!(
        "| `{probe}` | {where_} | {count} | {complete} | {} | {} | {} | {} |",
        quantiles(micros(&listed, "crash_to_reader_us"), 1.0, true),
        quantiles(late, 1.0, true),
        quantiles(micros(&listed, "crash_to_held_us"), 1000.0, false),
        quantiles(micros(&listed, "held_us"), 1000.0, false),
    );
    Ok(())
}

/// A time of each crash, in microseconds, where it has it.
fn micros(listed: &[Value], key: &str) -> Vec<f64> {
    listed.iter().filter_map(|crash| crash[key].as_f64()).collect()
}

fn quantiles(mut values: Vec<f64>, unit: f64, max: bool) -> String {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
        values
            .get(index)
            .map_or_else(|| "-".to_owned(), |value| format!("{:.1}", value / unit))
    };
    let mut text = format!("{}, {}", at(0.5), at(0.99));
    if max {
        let _ = write!(text, ", {}", at(1.0));
    }
    text
}

/// Measures the cost of the daemon without crashes.
fn idle(backtrail: &Path) -> Result<(), Failure> {
    let daemon = Daemon::start(backtrail, "")?;
    std::thread::sleep(Duration::from_secs(2));
    let before = daemon.ticks()?;
    std::thread::sleep(IDLE);
    let ticks = daemon.ticks()? - before;
    // USER_HZ is 100 on x86-64 Linux: a tick is 10 ms.
    let share = ticks as f64 / 100.0 / IDLE.as_secs_f64() * 100.0;
    println!(
        "Idle for {IDLE:?}: {ticks} ticks of 10 ms ({share:.3} % of a core), {:.1} MB resident (private {:.1} MB).\n",
        daemon.status("VmRSS")? as f64 / 1024.0,
        daemon.status("RssAnon")? as f64 / 1024.0,
    );
    Ok(())
}

/// A program that starts processes, opens files and computes, with and without the daemon, in turn.
fn pairs(backtrail: &Path) -> Result<(), Failure> {
    let once = || -> Result<f64, Failure> {
        let begun = Instant::now();
        let script = "for i in $(seq 60); do /bin/true; done; seq 200000 | sort -rn | sha256sum";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        quiet(shell).status().map_err(|error| error.to_string())?;
        Ok(begun.elapsed().as_secs_f64())
    };
    once()?;
    let mut ratios = Vec::new();
    for _ in 0..PAIRS {
        let without = once()?;
        let daemon = Daemon::start(backtrail, "")?;
        let with = once()?;
        drop(daemon);
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "{PAIRS} pairs of a run with the daemon and one without: ratio {:.3} in the middle, {:.3} to {:.3} (quartiles).",
        ratios[PAIRS / 2],
        ratios[PAIRS / 4],
        ratios[3 * PAIRS / 4],
    );
    Ok(())
}

/// A daemon in a folder of its own.
struct Daemon {
    backtrail: PathBuf,
    folder: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    fn start(backtrail: &Path, settings: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| format!("cannot start the collector: {error}");
        let folder = tempfile::Builder::new()
            .prefix("bt")
            .tempdir_in("/tmp")
            .map_err(failed)?;
        let at = |name: &str| folder.path().join(name);
        let config = format!("spool = {:?}\nruntime = {:?}\n{settings}", at("spool"), at("run"));
        fs::write(at("collect.toml"), config).map_err(failed)?;
        let log = fs::File::create(at("log")).map_err(failed)?;
        let child = Command::new(backtrail)
            .args(["collect", "--config"])
            .arg(at("collect.toml"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let daemon = Self {
            backtrail: backtrail.to_owned(),
            folder,
            child,
        };
        let begun = Instant::now();
        while !daemon.log().contains(" ready") {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!(
                    "the collector did not start; run as root? {}",
                    daemon.log()
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn list(&self) -> Result<Vec<Value>, Failure> {
        let output = Command::new(&self.backtrail)
            .args(["crashes", "list", "--json", "--config"])
            .arg(self.folder.path().join("collect.toml"))
            .output()
            .map_err(|error| error.to_string())?;
        let listed: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Ok(listed["crashes"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until this number of bundles exists.
    fn settle(&self, count: usize) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let found = fs::read_dir(self.folder.path().join("spool"))
                .into_iter()
                .flatten()
                .flatten();
            let found = found
                .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
                .count();
            if found >= count {
                return Ok(());
            }
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(format!(
                    "{found} of {count} crashes are in the spool: {}",
                    self.log()
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Processor time so far, user and system, of the daemon and its guard.
    fn ticks(&self) -> Result<u64, Failure> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .map_err(|error| error.to_string())?;
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<u64> = fields
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        // After the name and the state letter, ppid is number 1, utime 11 and stime 12.
        Ok(fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0))
    }

    /// A size in `/proc/PID/status`, in KiB.
    fn status(&self, key: &str) -> Result<u64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .map_err(|error| error.to_string())?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        Ok(line
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or(0))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// A thread of the probe reader's priority that only sleeps, a millisecond at a time.
///
/// Its delay is the machine's, and the reader can have the same delay.
struct Sleeper {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Sleeper {
    /// `crash.priority` of the collector where nothing is configured.
    const PRIORITY: &'static str = "50";
    const SLEEP: Duration = Duration::from_millis(1);

    fn start() -> Result<Self, Failure> {
        let enough = Arc::new(AtomicBool::new(false));
        let (seen, (tell, told)) = (Arc::clone(&enough), channel());
        let thread = std::thread::spawn(move || {
            let _ = tell.send(nix::unistd::gettid());
            let mut late = Vec::new();
            while !seen.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(Self::SLEEP);
                late.push(begun.elapsed().saturating_sub(Self::SLEEP).as_secs_f64() * 1e6);
            }
            late
        });
        let tid = told.recv().map_err(|error| error.to_string())?.to_string();
        let mut prioritize = Command::new("chrt");
        prioritize.args(["--fifo", "--pid", Self::PRIORITY, &tid]);
        let done = quiet(prioritize).status().map_err(|error| error.to_string())?;
        done.success()
            .then_some(Self { enough, thread })
            .ok_or_else(|| "no real-time priority for the sleeper; run as root?".to_owned())
    }

    /// By how much it woke late each time, in microseconds.
    fn stop(self) -> Vec<f64> {
        self.enough.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Two threads that compute for each processor, until it is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Result<Self, Failure> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut children = Self(Vec::new());
        for _ in 0..2 * processors {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]);
            children
                .0
                .push(quiet(shell).spawn().map_err(|error| error.to_string())?);
        }
        Ok(children)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn quiet(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
