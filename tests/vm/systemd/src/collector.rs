//! The collector's unit: started, used in every way, reloaded, killed, stopped, with another user.

use crate::systemd::{
    COLLECTOR, core_pattern, crash, crash_of, crashes, daemon, is_whole, journal, property, read,
    remove_unit, said, still_runs, systemctl, unit, until, uptime, write,
};
use crate::{Outcome, Test};
use backtrail_collector::privilege;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

/// Tests before services are recorded.
pub const FIRST: &[Test] = &[
    Test {
        name: "systemd/starts",
        run: starts,
    },
    Test {
        name: "systemd/capabilities",
        run: capabilities,
    },
    Test {
        name: "systemd/filter",
        run: filter,
    },
    Test {
        name: "systemd/crash",
        run: a_service_crashes,
    },
    Test {
        name: "systemd/snapshot",
        run: snapshot,
    },
    Test {
        name: "systemd/function",
        run: function,
    },
    Test {
        name: "systemd/reload",
        run: reload,
    },
    Test {
        name: "systemd/storm",
        run: storm,
    },
];

/// Tests after that.
pub const LAST: &[Test] = &[
    Test {
        name: "systemd/watchdog",
        run: watchdog,
    },
    Test {
        name: "systemd/hangs",
        run: hangs,
    },
    Test {
        name: "systemd/killed",
        run: killed,
    },
    Test {
        name: "systemd/stop",
        run: stop,
    },
    Test {
        name: "systemd/user",
        run: other_user,
    },
    Test {
        name: "systemd/log",
        run: log,
    },
];

const CONFIG: &str = "/etc/backtrail/collect.toml";
/// The folder where systemd-coredump, the previous handler in `core_pattern`, stores cores.
const COREDUMPS: &str = "/var/lib/systemd/coredump";

/// `backtrail install` on a machine without the collector, and the next command that it prints.
fn starts() -> Outcome {
    let before = core_pattern()?;
    if !before.contains("systemd-coredump") {
        return Err(format!("systemd-coredump is not set up here: {before}"));
    }
    let told = said("backtrail", &["install"])?;
    let next = "next: systemctl daemon-reload && systemctl enable --now backtrail-collect.service";
    if !told.contains(next) {
        return Err(format!("it says: {told}"));
    }
    systemctl(&["daemon-reload"])?;
    // The command returns after the daemon is ready, or fails.
    systemctl(&["enable", "--now", COLLECTOR])?;
    for (name, expected) in [
        ("ActiveState", "active"),
        ("SubState", "running"),
        ("NRestarts", "0"),
    ] {
        let found = property(COLLECTOR, name)?;
        if found != expected {
            return Err(format!("{name} is {found}: {}", journal(&["--unit", COLLECTOR])));
        }
    }
    if core_pattern()? == before {
        return Err("core_pattern is as it was".into());
    }
    write("/run/before", &before)
}

/// The daemon has the capabilities that it needs, and can get no other.
fn capabilities() -> Outcome {
    let needed = privilege::NEEDED
        .iter()
        .fold(0, |mask, (capability, _)| mask | capability.bitmask());
    holds(daemon()?, needed)
}

fn holds(pid: u32, needed: u64) -> Outcome {
    let status = read(format!("/proc/{pid}/status"))?;
    let line = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().trim().to_owned()
    };
    for key in ["CapPrm:", "CapEff:", "CapBnd:"] {
        if u64::from_str_radix(&line(key), 16) != Ok(needed) {
            return Err(format!("{key} is {}, not {needed:016x}", line(key)));
        }
    }
    if line("NoNewPrivs:") != "1" || line("Seccomp:") != "2" {
        return Err(format!("it is not confined: {status}"));
    }
    Ok(())
}

/// From here on, a system call outside the filter kills the daemon, which all following tests would
/// detect.
fn filter() -> Outcome {
    let drop_in = format!("{COLLECTOR}.d/kill.conf");
    unit(&drop_in, "[Service]\nSystemCallErrorNumber=kill\n")?;
    systemctl(&["restart", COLLECTOR])?;
    still_runs(daemon()?)?;
    // A filter without bpf(2), which the probe needs, shows that the kill works.
    let narrow = format!("{COLLECTOR}.d/narrow.conf");
    unit(
        &narrow,
        "[Service]\nSystemCallFilter=\nSystemCallFilter=@system-service @debug\n",
    )?;
    let started = systemctl(&["restart", COLLECTOR]);
    let said = journal(&["--unit", COLLECTOR, "--lines", "20"]);
    remove_unit(&narrow)?;
    systemctl(&["stop", COLLECTOR])?;
    if started.is_ok() || !said.contains("status=31/SYS") {
        return Err(format!("it starts without bpf(2): {said}"));
    }
    systemctl(&["start", COLLECTOR])
}

/// A service crashes: its bundle is complete, and its core reached systemd-coredump.
fn a_service_crashes() -> Outcome {
    let pid = daemon()?;
    unit("teller.service", "[Service]\nExecStart=/usr/bin/teller\n")?;
    systemctl(&["start", "teller"])?;
    until("teller has crashed", || {
        Ok((property("teller", "Result")? == "core-dump").then_some(()))
    })?;
    let teller: u32 = property("teller", "ExecMainPID")?
        .parse()
        .map_err(|error| format!("no process: {error}"))?;
    is_whole(&crash_of(teller)?)?;
    until("systemd-coredump has the core", || {
        let names = std::fs::read_dir(COREDUMPS).map_err(|error| error.to_string())?;
        let of_it = format!(".{teller}.");
        let found = names
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().contains(&of_it));
        Ok(found.then_some(()))
    })?;
    still_runs(pid)
}

/// A running process is saved through the control socket, and continues.
fn snapshot() -> Outcome {
    let pid = daemon()?;
    let failed = |error: std::io::Error| format!("sleep: {error}");
    let mut sleeper = Command::new("sleep").arg("300").spawn().map_err(failed)?;
    let told = said("backtrail", &["snapshot", "--pid", &sleeper.id().to_string()]);
    let runs = sleeper.try_wait().map_err(failed)?.is_none();
    sleeper.kill().map_err(failed)?;
    sleeper.wait().map_err(failed)?;
    told?;
    let listed = crashes()?;
    let saved = saved_as(&listed, sleeper.id());
    match saved {
        Some(crash) if runs && crash["trigger"] == "snapshot" && crash["complete"] == true => still_runs(pid),
        _ => Err(format!("runs on: {runs}, listed is {saved:?}")),
    }
}

/// Installs units for another configuration, and starts the daemon with it.
fn again() -> Outcome {
    said("backtrail", &["install", "--overwrite"])?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["restart", COLLECTOR])
}

/// Returns the entry of a bundle of a process that has not crashed, by the suffix of its name.
fn saved_as(listed: &[Value], pid: u32) -> Option<&Value> {
    let end = format!("-{pid}");
    let is_it = |crash: &&Value| crash["id"].as_str().is_some_and(|id| id.ends_with(&end));
    listed.iter().find(is_it)
}

/// A function call writes a bundle.
fn function() -> Outcome {
    let before = read(CONFIG)?;
    let other = "[limit]\nburst = 20\n[[function]]\nbinary = \"/usr/bin/teller\"\nsymbol = \"count\"\n";
    write(CONFIG, other)?;
    again()?;
    let pid = daemon()?;
    let failed = |error: std::io::Error| format!("teller: {error}");
    let mut teller = Command::new("teller").arg("/nothing").spawn().map_err(failed)?;
    let saved = until("the call is in the spool", || {
        Ok(saved_as(&crashes()?, teller.id()).cloned())
    });
    teller.kill().map_err(failed)?;
    teller.wait().map_err(failed)?;
    write(CONFIG, &before)?;
    capabilities()?;
    let trigger = saved?["trigger"].as_str().unwrap_or_default().to_owned();
    still_runs(pid)?;
    again()?;
    if trigger.contains("function") || trigger.contains("count") {
        Ok(())
    } else {
        Err(format!("its trigger is {trigger:?}"))
    }
}

/// Reload keeps the process, and applies the changes.
fn reload() -> Outcome {
    let pid = daemon()?;
    let before = read(CONFIG)?;
    write(CONFIG, "[crash]\ncore = \"none\"\n")?;
    systemctl(&["reload", COLLECTOR])?;
    let small = crash_of(crash()?)?;
    write(CONFIG, &before)?;
    systemctl(&["reload", COLLECTOR])?;
    let whole = crash_of(crash()?)?;
    let size = |crash: &Value| {
        let bundle = crash["bundle"].as_str().unwrap_or_default();
        std::fs::metadata(std::path::Path::new(bundle).join("core")).map_or(0, |core| core.len())
    };
    if size(&small) * 2 > size(&whole) {
        return Err(format!("cores of {} and {} bytes", size(&small), size(&whole)));
    }
    is_whole(&whole)?;
    still_runs(pid)
}

/// Many crash at once, and each is saved.
fn storm() -> Outcome {
    const MANY: usize = 12;
    let pid = daemon()?;
    let threads: Vec<_> = (0..MANY).map(|_| std::thread::spawn(crash)).collect();
    for thread in threads {
        let teller = thread.join().map_err(|_| "a thread broke down".to_owned())??;
        is_whole(&crash_of(teller)?)?;
    }
    still_runs(pid)
}

/// The daemon notifies the watchdog in time, and is not restarted.
fn watchdog() -> Outcome {
    let pid = daemon()?;
    let limit = property(COLLECTOR, "WatchdogUSec")?;
    let began: f64 = property(COLLECTOR, "ActiveEnterTimestampMonotonic")?
        .parse()
        .map_err(|error| format!("no time: {error}"))?;
    if limit != "30s" {
        return Err(format!("the watchdog waits {limit}"));
    }
    let until = began / 1e6 + 31.0;
    std::thread::sleep(Duration::from_secs_f64((until - uptime()).max(0.0)));
    still_runs(pid)
}

/// The watchdog kills a hanging daemon, and a new one starts.
fn hangs() -> Outcome {
    let drop_in = format!("{COLLECTOR}.d/soon.conf");
    unit(&drop_in, "[Service]\nWatchdogSec=3\n")?;
    systemctl(&["restart", COLLECTOR])?;
    let pid = daemon()?;
    signal(pid, nix::sys::signal::Signal::SIGSTOP)?;
    let again = another_than(pid);
    let said = journal(&["--unit", COLLECTOR, "--lines", "30"]);
    remove_unit(&drop_in)?;
    systemctl(&["restart", COLLECTOR])?;
    again?;
    if said.contains("Watchdog timeout") {
        Ok(())
    } else {
        Err(format!("not by the watchdog: {said}"))
    }
}

fn signal(pid: u32, signal: nix::sys::signal::Signal) -> Outcome {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX));
    nix::sys::signal::kill(pid, signal).map_err(|error| format!("cannot send {signal} to {pid}: {error}"))
}

/// Waits for a new daemon that is ready; `core_pattern` must be complete during the wait.
fn another_than(pid: u32) -> Outcome {
    let before = read("/run/before")?;
    until("another one runs", || {
        let pattern = core_pattern()?;
        if pattern != before && !pattern.contains(" core-handler /run/backtrail ") {
            return Err(format!("core_pattern is {pattern}"));
        }
        let runs = property(COLLECTOR, "SubState")? == "running";
        Ok((runs && daemon()? != pid).then_some(()))
    })
}

/// A killed daemon is restarted. Crashes before the restart go to the previous handler.
fn killed() -> Outcome {
    let pid = daemon()?;
    signal(pid, nix::sys::signal::Signal::SIGKILL)?;
    let meanwhile = crash()?;
    another_than(pid)?;
    let of_it = format!(".{meanwhile}.");
    let kept = std::fs::read_dir(COREDUMPS)
        .map_err(|error| error.to_string())?
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().contains(&of_it));
    if !kept {
        return Err("the core of a crash in between is lost".into());
    }
    is_whole(&crash_of(crash()?)?)
}

/// Stopping restores everything that the daemon changed.
fn stop() -> Outcome {
    systemctl(&["stop", COLLECTOR])?;
    let (before, now) = (read("/run/before")?, core_pattern()?);
    if now != before {
        return Err(format!("core_pattern was {before}, and is {now}"));
    }
    let result = property(COLLECTOR, "Result")?;
    if result == "success" {
        Ok(())
    } else {
        Err(format!("it ended with {result}"))
    }
}

/// With `user`, the group of that user may open bundles, also after a restart. The daemon stays
/// root.
fn other_user() -> Outcome {
    let before = read(CONFIG)?;
    write(CONFIG, &format!("user = \"backtrail\"\n{before}"))?;
    for _ in 0..2 {
        systemctl(&["start", COLLECTOR])?;
        let pid = daemon()?;
        capabilities()?;
        let crash = crash_of(crash()?)?;
        is_whole(&crash)?;
        let bundle = crash["bundle"].as_str().ok_or("a crash without a bundle")?;
        let found = std::fs::metadata(bundle).map_err(|error| format!("{bundle}: {error}"))?;
        let (group, mode) = (found.gid(), found.mode() & 0o7777);
        if (found.uid(), group, mode) != (0, 998, 0o750) {
            return Err(format!("the bundle is of group {group}, mode {mode:o}"));
        }
        still_runs(pid)?;
        stop()?;
    }
    write(CONFIG, &before)?;
    systemctl(&["start", COLLECTOR])?;
    is_whole(&crash_of(crash()?)?)?;
    stop()
}

/// The filter killed nothing except where intended, and the log has no other error.
fn log() -> Outcome {
    let said = journal(&["--unit", COLLECTOR]);
    let (_, after) = said
        .rsplit_once("status=31/SYS")
        .ok_or("the filter was never met")?;
    let saved = after.matches("a crash ended process").count();
    if saved < 15 {
        return Err(format!(
            "only {saved} crashes were saved after the filter was met last"
        ));
    }
    let wrong: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(" ERROR ") || line.contains("NAMESPACE"))
        // The test of functions kills the program during its calls.
        .filter(|line| !line.contains("a function trigger fired in process"))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}
