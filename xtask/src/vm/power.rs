//! Power loss: a machine ends while it saves crashes, and the next one checks the same disk.
//!
//! qemu is killed. Data that the kernel inside had not written to its disk is lost, as in a power
//! loss. Written data is in this machine's memory and stays. A disk that loses unflushed data is
//! not emulated.

use super::bundles;
use super::kernel::Kernel;
use super::machine::{Machine, Start};
use super::recordings::Recording;
use super::report::MachineReport;
use super::{cannot, output_of};
use crate::Failure;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The beginning of its tests' names.
pub const NAME: &str = "power-loss";
/// More than `spool_free`; only what is written takes room here.
const DISK: u64 = 1 << 30;
/// A machine that has saved nothing after this hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Once the first crash is saved the power goes within this.
const WITHIN: Duration = Duration::from_millis(2500);

/// The configuration of the machines, and the number of power losses.
pub struct Scene<'a> {
    pub kernel: &'a Kernel,
    pub archive: &'a Path,
    pub folder: &'a Path,
    pub recordings: &'a [Recording],
    pub backtrail: &'a Path,
    pub losses: usize,
}

/// Everything that was lost and must not have been, and whatever else failed.
pub fn run(scene: &Scene<'_>) -> Result<Vec<String>, Failure> {
    let disk = scene.folder.join(format!("{}.disk", scene.kernel.release));
    format(&disk)?;
    let mut failures = Vec::new();
    let mut saved = BTreeMap::new();
    let mut half = false;
    for loss in 0..=scene.losses {
        let task = match loss {
            _ if loss == scene.losses => "end",
            0 => "half",
            _ => "work",
        };
        let name = format!("{}.{NAME}-{loss}", scene.kernel.release);
        let machine = Machine::start(&Start {
            kernel: scene.kernel,
            archive: scene.archive,
            folder: scene.folder,
            name: &name,
            words: &[NAME, task],
            disk: Some(&disk),
        })?;
        let report = match task {
            "end" => machine.finish(LIMIT)?,
            _ => worked(machine, task)?,
        };
        let found = look(&report, &saved, half);
        println!("    {}", told(&report, loss));
        failures.extend(
            found
                .into_iter()
                .map(|failure| format!("{NAME}, after {loss} of {}: {failure}", scene.losses)),
        );
        if task == "end" {
            failures.extend(report.complete().err());
            failures.extend(bundles::decode(
                &report,
                scene.recordings,
                scene.backtrail,
                &scene.folder.join(&scene.kernel.release),
            )?);
        }
        if !failures.is_empty() {
            // Later machines would report the same again.
            return Ok(failures);
        }
        half = report.spool().half;
        saved.extend(report.spool().saved.clone());
    }
    std::fs::remove_file(&disk).map_err(|error| cannot("remove", &disk, &error))?;
    Ok(failures)
}

/// An empty file system in a file.
fn format(disk: &Path) -> Result<(), Failure> {
    File::create(disk)
        .and_then(|file| file.set_len(DISK))
        .map_err(|error| cannot("make", disk, &error))?;
    // Not all have it on their path.
    let tool = Path::new("/usr/sbin/mke2fs");
    let tool = if tool.exists() { tool } else { Path::new("mke2fs") };
    output_of(Command::new(tool).args(["-q", "-t", "ext4", "-F"]).arg(disk))
        .map(drop)
        .map_err(|error| format!("cannot create a file system with mke2fs (package e2fsprogs): {error}"))
}

/// Runs a machine, and kills it on its request, or at a moment after it has saved a crash.
fn worked(mut machine: Machine, task: &str) -> Result<MachineReport, Failure> {
    let begin = Instant::now();
    loop {
        let report = machine.report()?;
        let spool = report.spool();
        if task == "half" && spool.half {
            return machine.lose_power();
        }
        if task == "work" && !spool.saved.is_empty() {
            thread::sleep(some(WITHIN));
            return machine.lose_power();
        }
        if report.has_failed() {
            return machine.lose_power();
        }
        if machine.has_ended()? || begin.elapsed() > LIMIT {
            machine.show("saved no crash")?;
            return machine.lose_power();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a random moment before `limit`.
fn some(limit: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The low digits of the nanoseconds, spread (Knuth's multiplier).
    let spread = now.subsec_nanos().wrapping_mul(2_654_435_769);
    limit * (spread >> 16) / (1 << 16)
}

/// Compares a machine's findings with the bundles that earlier ones had saved.
fn look(report: &MachineReport, saved: &BTreeMap<String, String>, half: bool) -> Vec<String> {
    let spool = report.spool();
    let mut failures = report.failed();
    if report.planned().is_empty() {
        failures.push("no test started".into());
    }
    for (bundle, digest) in saved {
        match spool.kept.get(bundle) {
            Some(kept) if kept == digest => {}
            Some(_) => failures.push(format!("{bundle} was saved, and has changed")),
            None => failures.push(format!("{bundle} was saved, and is missing")),
        }
    }
    if half && spool.left.is_none_or(|left| left == 0) {
        failures.push("a bundle was half written, but no unfinished bundle was found".into());
    }
    failures
}

fn told(report: &MachineReport, losses: usize) -> String {
    let spool = report.spool();
    format!(
        "{NAME}: after {losses}, {} whole and {} unfinished; then {} more saved",
        spool.kept.len(),
        spool.left.unwrap_or(0),
        spool.saved.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_bundles_must_be_found_unchanged() {
        let saved = MachineReport::parse(b"SAVED 1-x-1 aa\nSAVED 2-x-2 bb\n")
            .spool()
            .saved
            .clone();
        let whole =
            MachineReport::parse(b"PLAN a\nLEFT 1\nKEPT 1-x-1 aa\nKEPT 2-x-2 bb\nKEPT 3-x-3 cc\nTEST a ok\n");
        assert_eq!(look(&whole, &saved, true), Vec::<String>::new());
        let spoilt = MachineReport::parse(b"PLAN a\nLEFT 0\nKEPT 2-x-2 cc\nTEST a ok\n");
        let failures = look(&spoilt, &saved, true);
        assert_eq!(failures.len(), 3, "{failures:?}");
        assert_eq!(look(&MachineReport::parse(b""), &BTreeMap::new(), false).len(), 1);
    }

    #[test]
    fn random_moments_are_below_the_limit() {
        for _ in 0..1000 {
            assert!(some(Duration::from_millis(7)) < Duration::from_millis(7));
        }
    }
}
