//! The wall clock changes while the daemon runs. Order and durations must not change.

use super::{Daemon, PATIENCE, Setup, complete, crash_of, hand_out};
use crate::feed::Cut;
use crate::{Outcome, Report};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub const NAME: &str = "daemon/clock";

/// One day, in seconds.
const DAY: i64 = 86_400;
const PROGRAM: &str = "crash";
/// The maximum latency in microseconds. Latencies by the wall clock would be a day off.
const SANE: f64 = PATIENCE.as_micros() as f64;

/// Crashes before, between, after and during changes of the clock, one day forward and two back.
pub fn stepped(report: &mut Report) -> Outcome {
    let mut setup = Setup::at(Path::new("/var/daemon/clock"));
    let clock = WallClock::take()?;
    let mut daemon = Daemon::start(&setup)?;
    let mut happened = Vec::new();
    for days in [0, 1, -1] {
        clock.set(days)?;
        happened.push(save(&mut daemon)?);
    }
    let times: Vec<&str> = happened.iter().filter_map(|row| row["time"].as_str()).collect();
    if !matches!(times.as_slice(), [first, later, earlier] if first < later && earlier < first) {
        return Err(format!("the clock was not set, and nothing is shown: {times:?}"));
    }
    for _ in 0..3 {
        happened.push(clock.unsteady(|| save(&mut daemon))?);
    }

    // Another daemon with the same spool, on the previous day.
    daemon.end()?;
    clock.set(-1)?;
    let mut daemon = Daemon::start(&setup)?;
    happened.push(save(&mut daemon)?);
    in_order(&daemon.list()?, &happened)?;

    // The limit is one byte too small: the first crash is removed, although others are older by the
    // wall clock.
    setup.spool_limit = Some(size(&setup.spool)?.saturating_sub(1));
    daemon.reload(&setup)?;
    happened.push(save(&mut daemon)?);
    daemon.end()?;
    oldest_gone(&daemon.list()?, &happened)?;
    let last = happened.last().ok_or("nothing happened")?;
    hand_out(report, NAME, &setup.place, &complete(last)?, PROGRAM)
}

/// Crashes a program, and returns its list entry, which is complete and has no step of the clock in
/// its latency.
fn save(daemon: &mut Daemon) -> Result<Value, String> {
    let pid = crash_of(PROGRAM, Cut::Continuous)?;
    let row = daemon.crash_of(pid)?;
    complete(&row)?;
    for latency in [
        "crash_to_reader_us",
        "crash_to_stop_us",
        "crash_to_held_us",
        "held_us",
    ] {
        if !row[latency]
            .as_f64()
            .is_some_and(|took| (0.0..SANE).contains(&took))
        {
            return Err(format!("{latency} of a crash is {}: {row}", row[latency]));
        }
    }
    Ok(row)
}

/// Checks that the list has the crashes in their order, with increasing numbers.
fn in_order(list: &[Value], happened: &[Value]) -> Outcome {
    let numbers: Vec<u64> = list.iter().filter_map(number).collect();
    let rise = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if ids(list) != ids(happened) || numbers.len() != list.len() || !rise {
        return Err(format!(
            "happened have {:?}, listed are {:?}",
            ids(happened),
            ids(list)
        ));
    }
    Ok(())
}

/// Checks that the newest crashes remain: more than the last, and not all.
fn oldest_gone(left: &[Value], happened: &[Value]) -> Outcome {
    let (left, happened) = (ids(left), ids(happened));
    if left.len() < 2 || left.len() >= happened.len() || !happened.ends_with(&left) {
        return Err(format!("of {happened:?} the spool's limit has left {left:?}"));
    }
    Ok(())
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["id"].as_str()).collect()
}

/// Returns the number of a bundle: 42 for `000042-worker-4231`.
fn number(row: &Value) -> Option<u64> {
    row["id"].as_str()?.split('-').next()?.parse().ok()
}

/// Returns the disk usage of a directory. A file with several names counts once.
fn size(directory: &Path) -> Result<u64, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let failed = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else {
                found.insert(metadata.ino(), metadata.blocks() * 512);
            }
        }
    }
    Ok(found.values().sum())
}

/// The machine's wall clock, which is corrected at the end.
struct WallClock {
    /// The difference between the wall clock and the time since boot.
    ahead: TimeSpec,
}

impl WallClock {
    fn take() -> Result<Self, String> {
        let wall = clock_gettime(ClockId::CLOCK_REALTIME);
        let running = clock_gettime(ClockId::CLOCK_BOOTTIME);
        match (wall, running) {
            (Ok(wall), Ok(running)) => Ok(Self {
                ahead: wall - running,
            }),
            (wall, running) => Err(format!("cannot read the clocks: {wall:?}, {running:?}")),
        }
    }

    /// Sets the clock to this number of days after the right time.
    fn set(&self, days: i64) -> Outcome {
        clock_gettime(ClockId::CLOCK_BOOTTIME)
            .map(|running| running + self.ahead + TimeSpec::new(days * DAY, 0))
            .and_then(|time| clock_settime(ClockId::CLOCK_REALTIME, time))
            .map_err(|error| format!("cannot set the clock: {error}"))
    }

    /// Runs `act` while the clock changes back and forth.
    fn unsteady<T>(&self, act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let setting = scope.spawn(|| {
                let mut days = 1;
                while !done.load(Ordering::Relaxed) {
                    self.set(days)?;
                    days = -days;
                    thread::sleep(Duration::from_millis(3));
                }
                self.set(-1)
            });
            let result = act();
            done.store(true, Ordering::Relaxed);
            setting.join().map_err(|_| "the clock's thread broke down")??;
            result
        })
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        self.set(0).ok();
    }
}
