//! The limits of time and memory, which a thread of its own watches.

use crate::{Error, Result};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(20);

/// The watch over a process. It ends with the value.
#[derive(Debug)]
pub(crate) struct Watchdog {
    has_ended: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts the watch. `exceeded` is called once when a limit is exceeded, and ends the process.
    pub(crate) fn start(
        seconds: u64,
        memory: u64,
        exceeded: impl FnOnce(Error) + Send + 'static,
    ) -> Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&has_ended);
        let limit = WatchLimits {
            deadline: Instant::now().checked_add(Duration::from_secs(seconds)),
            seconds,
            memory,
            base: resident_bytes().unwrap_or(0),
            parent: parent(),
        };
        thread::Builder::new()
            .name("limits".into())
            .spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(error) = limit.exceeded() {
                        exceeded(error);
                        return;
                    }
                    thread::sleep(PERIOD);
                }
            })
            .map_err(|error| Error::System {
                action: "start a thread",
                reason: error.to_string(),
            })?;
        Ok(Self { has_ended })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// The limits, and the state of the process at the start.
struct WatchLimits {
    /// The end. `None`: never.
    deadline: Option<Instant>,
    seconds: u64,
    memory: u64,
    base: u64,
    parent: Option<u32>,
}

impl WatchLimits {
    /// Returns the error of a limit that is exceeded.
    fn exceeded(&self) -> Option<Error> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Some(Error::Time(self.seconds));
        }
        let used = resident_bytes().unwrap_or(0).saturating_sub(self.base);
        if used > self.memory {
            return Some(Error::Memory(self.memory));
        }
        match self.parent == parent() {
            true => None,
            false => Some(Error::Failed("the program that started the query ended".into())),
        }
    }
}

/// Returns the process that started this one.
fn parent() -> Option<u32> {
    #[cfg(unix)]
    return Some(std::os::unix::process::parent_id());
    #[cfg(not(unix))]
    None
}

/// Returns the memory that this process occupies, without the pages of its files. `None`: the
/// system does not say.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn time_and_memory_beyond_the_limits_are_reported() {
        let (sender, receiver) = mpsc::channel();
        let report = sender.clone();
        let _watch = Watchdog::start(0, u64::MAX, move |error| drop(report.send(error))).unwrap();
        let error = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(matches!(error, Error::Time(0)));
        let _watch = Watchdog::start(600, 32 << 20, move |error| drop(sender.send(error))).unwrap();
        let ballast = std::hint::black_box(vec![1u8; 128 << 20]);
        let error = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(matches!(error, Error::Memory(_)), "{error} {}", ballast.len());
    }
}
