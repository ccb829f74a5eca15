//! The machine: units, the journal, crashes in the spool.

use crate::Outcome;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time limit of each step in an emulated machine.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// The collector's unit.
pub const COLLECTOR: &str = "backtrail-collect.service";
/// Where units and drop-ins are written.
const UNITS: &str = "/etc/systemd/system";
/// The kernel's core handler.
pub const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// Returns the name of process 1.
pub fn first_process() -> String {
    read("/proc/1/comm").unwrap_or_default().trim().to_owned()
}

/// Returns the versions of the kernel and systemd.
pub fn described() -> String {
    let kernel = fs::read_to_string("/proc/version").unwrap_or_default();
    let systemd = said("systemctl", &["--version"]).unwrap_or_default();
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    format!("{}; {}", first(&systemd), first(&kernel))
}

/// Returns the seconds since power on.
pub fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0)
}

/// Returns the contents of a file.
pub fn read(path: impl AsRef<Path>) -> Result<String, String> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Writes a file, and creates its directories.
pub fn write(path: impl AsRef<Path>, text: &str) -> Outcome {
    let path = path.as_ref();
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Returns the output of a command, which must succeed.
pub fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{program} {} failed: {errors}{text}",
        arguments.join(" ")
    ))
}

/// Runs `systemctl`.
pub fn systemctl(arguments: &[&str]) -> Outcome {
    said("systemctl", arguments).map(drop)
}

/// Returns a property of a unit.
pub fn property(unit: &str, name: &str) -> Result<String, String> {
    let text = said("systemctl", &["show", "--value", "--property", name, unit])?;
    Ok(text.trim().to_owned())
}

/// Returns the main process of the collector.
pub fn daemon() -> Result<u32, String> {
    let pid = property(COLLECTOR, "MainPID")?;
    match pid.parse() {
        Ok(0) | Err(_) => Err("the collector has no process".into()),
        Ok(pid) => Ok(pid),
    }
}

/// Checks that the collector runs, as the same process.
pub fn still_runs(pid: u32) -> Outcome {
    let state = property(COLLECTOR, "SubState")?;
    let now = daemon()?;
    if state == "running" && now == pid {
        return Ok(());
    }
    Err(format!(
        "the collector was process {pid}, and is process {now}, {state}: {}",
        journal(&["--unit", COLLECTOR, "--lines", "10"])
    ))
}

/// Writes a unit or drop-in, and lets systemd read it.
pub fn unit(name: &str, text: &str) -> Outcome {
    write(Path::new(UNITS).join(name), text)?;
    systemctl(&["daemon-reload"])
}

/// Removes a drop-in.
pub fn remove_unit(name: &str) -> Outcome {
    let path = Path::new(UNITS).join(name);
    fs::remove_file(&path).map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
    systemctl(&["daemon-reload"])
}

/// Returns the journal's messages.
pub fn journal(arguments: &[&str]) -> String {
    let all = [&["--no-pager", "--output=short-monotonic", "--boot"], arguments].concat();
    said("journalctl", &all).unwrap_or_else(|why| why)
}

/// Returns `core_pattern`.
pub fn core_pattern() -> Result<String, String> {
    Ok(read(CORE_PATTERN)?.trim().to_owned())
}

/// Waits until `look` returns a value.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!(
                "{what}: not within {} s: {}",
                PATIENCE.as_secs(),
                journal(&["--lines", "15"])
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the crashes in the spool, oldest first.
pub fn crashes() -> Result<Vec<Value>, String> {
    let text = said("backtrail", &["crashes", "list", "--json"])?;
    let list: Value = serde_json::from_str(&text).map_err(|error| format!("{error} in {text}"))?;
    Ok(list["crashes"].as_array().cloned().unwrap_or_default())
}

/// Waits for the crash of a process.
pub fn crash_of(pid: u32) -> Result<Value, String> {
    until(&format!("process {pid} is in the spool"), || {
        Ok(crashes()?.into_iter().find(|crash| crash["pid"] == pid))
    })
}

/// Checks that a bundle is complete, and that the probe reported its crash.
pub fn is_whole(crash: &Value) -> Outcome {
    let missing = crash["missing"].as_array().map_or(1, Vec::len);
    if crash["complete"] != true || missing != 0 || crash["signal"] != 11 || crash["probe"].is_null() {
        return Err(format!("the crash is listed as {crash}"));
    }
    let bundle = crash["bundle"].as_str().unwrap_or_default();
    if !Path::new(bundle).join("core").is_file() {
        return Err(format!("{bundle} has no core"));
    }
    let checked = said("backtrail", &["check", bundle])?;
    if checked.contains("no faults") {
        Ok(())
    } else {
        Err(format!("{bundle}: {checked}"))
    }
}

/// Runs the program that crashes to its end, and returns its process id.
pub fn crash() -> Result<u32, String> {
    let mut child = Command::new("teller")
        .spawn()
        .map_err(|error| format!("cannot start teller: {error}"))?;
    let pid = child.id();
    child
        .wait()
        .map_err(|error| format!("cannot wait for teller: {error}"))?;
    Ok(pid)
}
