//! The whole way: the daemon runs, a program crashes, a bundle with its history and its core is in the spool.

use crate::child::{Waiting, killed_by};
use crate::feed::{Cut, Feed, recording};
use crate::{Outcome, Report, Test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test {
        name: "daemon/crash",
        run: crash,
    },
    Test {
        name: "daemon/migrating",
        run: migrating,
    },
];

const BACKTRAIL: &str = "/usr/bin/backtrail";
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
const PATIENCE: Duration = Duration::from_secs(60);

/// A program crashes on one processor.
fn crash(report: &mut Report) -> Outcome {
    whole_way(report, "daemon/crash", "crash", Cut::Continuous)
}

/// A program that has run on both crashes.
fn migrating(report: &mut Report) -> Outcome {
    whole_way(report, "daemon/migrating", "migrate", Cut::Independent)
}

fn whole_way(report: &mut Report, test: &str, program: &str, cut: Cut) -> Outcome {
    let place = PathBuf::from("/var").join(test);
    let before = core_pattern()?;
    let mut daemon = Daemon::start(&place)?;
    if core_pattern()? == before {
        return Err(format!("the daemon is ready, but core_pattern is still {before}"));
    }
    let mut feed = Feed::open()?;
    let waiting = Waiting::start(&format!("/recordings/{program}"), 0)?;
    let pid = waiting.pid();
    feed.give(pid, &recording(program, cut)?)?;
    killed_by(&mut waiting.begin()?, PATIENCE)?;
    let row = daemon.crash_of(pid)?;
    daemon.end()?;
    if core_pattern()? != before {
        return Err(format!(
            "the daemon has ended, but core_pattern is {}",
            core_pattern()?
        ));
    }
    // The numbers of an emulated machine are not those of a real one: they are shown, not judged.
    report.note(&format!(
        "{test}: crash to reader {} µs, to stop {} µs, {} bytes of history, in emulation",
        row["crash_to_reader_us"], row["crash_to_stop_us"], row["history_bytes"]
    ))?;
    let missing = row["missing"].as_array().map_or(0, Vec::len);
    if row["signal"] != 11 || row["complete"] != true || missing != 0 {
        return Err(format!("the crash is listed as {row}"));
    }
    let bundle = PathBuf::from(row["bundle"].as_str().ok_or("no bundle is listed")?);
    if !bundle.join("core").is_file() {
        return Err(format!("{} has no core", bundle.display()));
    }
    let packed = place.join("bundle.btz");
    said(
        Command::new(BACKTRAIL)
            .arg("pack")
            .arg(&bundle)
            .arg("-o")
            .arg(&packed),
    )?;
    report.bundle(test, &packed, program, false)
}

/// A running daemon, with a spool of its own.
struct Daemon {
    process: Child,
    config: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts it, and waits until it says that it is ready.
    fn start(place: &PathBuf) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", place.display());
        fs::create_dir_all(place).map_err(failed)?;
        let config = place.join("collect.toml");
        let text = format!(
            "spool = \"{place}/spool\"\nruntime = \"{place}/run\"\n[trace]\nsource = \"hardware\"\nring = \"128K\"\n",
            place = place.display()
        );
        fs::write(&config, text).map_err(failed)?;
        let log = place.join("log");
        // As systemd asks for it (sd_notify(3)).
        let path = place.join("notify");
        let notify = UnixDatagram::bind(&path).map_err(failed)?;
        notify.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let process = Command::new(BACKTRAIL)
            .arg("collect")
            .arg("--config")
            .arg(&config)
            .env("NOTIFY_SOCKET", &path)
            .stderr(File::create(&log).map_err(failed)?)
            .spawn()
            .map_err(|error| format!("cannot start the daemon: {error}"))?;
        let daemon = Self { process, config, log };
        let mut message = [0; 4096];
        loop {
            let length = notify.recv(&mut message).map_err(|error| {
                format!("the daemon does not become ready ({error}): {}", daemon.logged())
            })?;
            let text = String::from_utf8_lossy(&message[..length]);
            if text.lines().any(|line| line == "READY=1") {
                return Ok(daemon);
            }
        }
    }

    /// Waits until the crash of a process is in the spool.
    fn crash_of(&mut self, pid: u32) -> Result<Value, String> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let text = said(
                Command::new(BACKTRAIL)
                    .args(["crashes", "list", "--json", "--config"])
                    .arg(&self.config),
            )?;
            let list: Value = serde_json::from_str(&text)
                .map_err(|error| format!("the list of crashes is no JSON ({error}): {text}"))?;
            if let Some(row) = rows(&list).iter().find(|row| row["pid"] == pid) {
                return Ok(row.clone());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Err(format!("process {pid} is not in the spool: {}", self.logged()))
    }

    /// Ends it, as systemd does.
    fn end(&mut self) -> Outcome {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM)
            .map_err(|error| format!("cannot end the daemon: {error}"))?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match self.process.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the daemon ended with {status}: {}", self.logged())),
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(format!("cannot wait for the daemon: {error}")),
            }
        }
        Err(format!("the daemon does not end: {}", self.logged()))
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.process.try_wait().ok().flatten().is_none() {
            self.process.kill().ok();
            self.process.wait().ok();
        }
    }
}

/// The list itself, or the list in an object.
fn rows(list: &Value) -> &[Value] {
    list.as_array()
        .or_else(|| list["crashes"].as_array())
        .map_or(&[], Vec::as_slice)
}

fn core_pattern() -> Result<String, String> {
    fs::read_to_string(CORE_PATTERN).map_err(|error| format!("cannot read {CORE_PATTERN}: {error}"))
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} failed: {errors}"))
}
