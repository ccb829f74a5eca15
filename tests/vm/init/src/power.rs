//! Power loss, from inside: checks the contents of the disk, then saves crashes to it until the
//! machine is ended.
//!
//! `xtask/src/vm/power.rs` boots machines in turn with the same disk, and compares the bundles that
//! one machine reported as saved with those that the next finds.

use crate::daemon::{self, BACKTRAIL, Daemon, PATIENCE, Setup, said};
use crate::feed::Cut;
use crate::{Outcome, Report, machine};
use nix::mount::MsFlags;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const DISK: &str = "/dev/vda";
const PLACE: &str = "/disk";
const PROGRAM: &str = "crash";
/// The prefix of unfinished bundles (bundle/src/writer.rs).
const UNFINISHED: &str = ".backtrail-";

/// The task after the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Saves crashes in turn, forever.
    Work,
    /// Saves one, and stops during the next.
    Half,
    /// Saves one, and shuts down normally.
    End,
}

impl Task {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "work" => Some(Self::Work),
            "half" => Some(Self::Half),
            "end" => Some(Self::End),
            _ => None,
        }
    }
}

/// The tests; the second runs only on the machine that shuts down normally.
const LOOK: &str = "power-loss/what-was-saved";
const AGAIN: &str = "power-loss/it-goes-on";

pub fn run(task: Task, report: &mut Report) -> Outcome {
    report.plan(LOOK)?;
    if task == Task::End {
        report.plan(AGAIN)?;
    }
    machine::load("/modules/intel_pt.ko")?;
    mount()?;
    let setup = Setup {
        spool: Path::new(PLACE).join("spool"),
        ..Setup::at(Path::new("/var/power-loss"))
    };
    let looked = look(&setup, report);
    let verdict = looked.as_ref().map(drop).map_err(Clone::clone);
    report.result(LOOK, &verdict)?;
    let mut daemon = looked?;
    match task {
        Task::Work => loop {
            save(&daemon, report)?;
        },
        Task::Half => {
            save(&daemon, report)?;
            stop_in_the_midst(&daemon, &setup)?;
            report.half()?;
            thread::sleep(PATIENCE);
            Err("the machine was not ended".into())
        }
        Task::End => {
            let outcome = save(&daemon, report)
                .and_then(|bundle| daemon::hand_out(report, AGAIN, &setup.place, &bundle, PROGRAM))
                .and_then(|()| daemon.end())
                .and_then(|()| unmount());
            report.result(AGAIN, &outcome)
        }
    }
}

/// Starts the daemon after a power loss. No unfinished bundle remains, and listed bundles are
/// complete.
fn look(setup: &Setup, report: &mut Report) -> Result<Daemon, String> {
    let left = unfinished(&setup.spool)?.len();
    report.left(left)?;
    let daemon = Daemon::start(setup)?;
    let still = unfinished(&setup.spool)?;
    if !still.is_empty() {
        return Err(format!("the daemon has begun, and {still:?} are still there"));
    }
    let told = format!("{left} unfinished bundle");
    if left != 0 && !daemon.logged().contains(&told) {
        return Err(format!(
            "the daemon does not say \"{told}…\": {}",
            daemon.logged()
        ));
    }
    let list = daemon.list()?;
    for row in &list {
        let bundle = daemon::complete(row)?;
        said(Command::new(BACKTRAIL).arg("check").arg(&bundle))?;
        report.kept(&name(&bundle), &digest(&bundle)?)?;
    }
    let listed: BTreeSet<String> = list
        .iter()
        .filter_map(|row| row["id"].as_str().map(str::to_owned))
        .collect();
    let there: BTreeSet<String> = names(&setup.spool)?
        .into_iter()
        .filter(|name| !name.starts_with('.'))
        .collect();
    if listed != there || listed.len() != list.len() {
        return Err(format!("listed are {listed:?}, in the spool is {there:?}"));
    }
    Ok(daemon)
}

/// Crashes a program, and reports its bundle as saved after the daemon did.
fn save(daemon: &Daemon, report: &mut Report) -> Result<PathBuf, String> {
    let pid = daemon::crash_of(PROGRAM, Cut::Continuous)?;
    let id = daemon.saved(pid)?;
    let bundle = Path::new(PLACE).join("spool").join(&id);
    report.saved(&id, &digest(&bundle)?)?;
    Ok(bundle)
}

/// Crashes programs until the daemon is stopped with a half-written bundle, which is then flushed
/// to the disk.
fn stop_in_the_midst(daemon: &Daemon, setup: &Setup) -> Outcome {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let crashing = thread::spawn(|| daemon::crash_of(PROGRAM, Cut::Continuous));
        while !crashing.is_finished() || !unfinished(&setup.spool)?.is_empty() {
            let half = |path: &PathBuf| path.join("core").exists();
            if !unfinished(&setup.spool)?.iter().any(half) {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            daemon.signal(Signal::SIGSTOP)?;
            // The daemon may have just finished it.
            if unfinished(&setup.spool)?.iter().any(half) {
                nix::unistd::sync();
                return Ok(());
            }
            daemon.signal(Signal::SIGCONT)?;
        }
    }
    Err("no bundle was ever seen unfinished".into())
}

fn unfinished(spool: &Path) -> Result<Vec<PathBuf>, String> {
    Ok(names(spool)?
        .into_iter()
        .filter(|name| name.starts_with(UNFINISHED))
        .map(|name| spool.join(name))
        .collect())
}

/// Returns the names in a directory, or none if the directory does not exist.
fn names(directory: &Path) -> Result<Vec<String>, String> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
    };
    Ok(entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

fn name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns the 64-bit FNV-1a of the names and contents of all files under a directory.
fn digest(directory: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
    let (mut files, mut waiting) = (BTreeSet::new(), vec![directory.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.file_type().map_err(failed)?.is_dir() {
                true => waiting.push(entry.path()),
                false => _ = files.insert(entry.path()),
            }
        }
    }
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for file in files {
        mix(file.as_os_str().as_encoded_bytes());
        mix(&fs::read(&file).map_err(failed)?);
    }
    Ok(format!("{hash:016x}"))
}

fn mount() -> Outcome {
    let mut modules = names(Path::new("/modules/disk"))?;
    modules.sort();
    for module in modules {
        machine::load(&format!("/modules/disk/{module}"))?;
    }
    let begin = Instant::now();
    while !Path::new(DISK).exists() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("there is no {DISK}"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    fs::create_dir_all(PLACE)
        .map_err(|error| error.to_string())
        .and_then(|()| {
            nix::mount::mount(Some(DISK), PLACE, Some("ext4"), MsFlags::empty(), None::<&str>)
                .map_err(|error| error.to_string())
        })
        .map_err(|error| format!("cannot mount the disk: {error}"))
}

fn unmount() -> Outcome {
    nix::mount::umount(PLACE).map_err(|error| format!("cannot unmount the disk: {error}"))
}
