//! Bytes a sample of a recording of all processes.

use super::Fleet;
use super::output;
use crate::Failure;
use crate::bench::profile::WORK;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Records all processes of a busy machine, as `bench profile` does.
pub(super) fn record(backtrail: &Path, folder: &Path, seconds: u64) -> Result<PathBuf, Failure> {
    let recording = folder.join("recording");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut work = Vec::new();
    for _ in 0..processors {
        let mut python = Command::new("python3");
        python.args(["-c", WORK]).stdout(Stdio::null());
        let started = python.spawn();
        work.push(started.map_err(|error| format!("cannot run python3: {error}"))?);
    }
    let mut record = Command::new(backtrail);
    record
        .args(["profile", "record", "--all", "--overwrite", "--freq", "99"])
        .args(["--duration", &format!("{seconds}s"), "-o"])
        .arg(&recording);
    let done = output(&mut record);
    for mut process in work {
        let _ = process.kill();
        let _ = process.wait();
    }
    done.map(|_| recording)
}

/// Stores a recording, and prints the size of each table.
pub(super) fn measure(fleet: &Fleet, folder: &Path, recording: &Path) -> Result<(), Failure> {
    let store = folder.join("recorded");
    let _ = fs::remove_dir_all(&store);
    let recording = recording.display().to_string();
    let _ = fleet.run(&["import"], &store, &[&recording])?;
    println!("\nA recording of all processes, after compaction:\n");
    print!("{}", fleet.run(&["sizes"], &store, &[])?);
    Ok(())
}
