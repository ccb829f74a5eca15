//! Keeps a program of the daemon running: starts it again after its end, with growing pauses.

use crate::error::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The interval between two checks of the configuration and the end of the daemon.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);
/// The shortest and the longest pause.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// A program that ran for so long is started again after the shortest pause.
const STABLE: Duration = Duration::from_secs(600);

/// The result of one attempt to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The configuration wants no program.
    NotWanted,
    /// The configuration changed, or the daemon ends.
    ByDaemon,
    /// The program ended by itself.
    ByItself,
}

/// Runs a program until the daemon ends. `run` runs it once, `name` is its name in the log, and
/// `failure` says there what does not happen while it cannot run.
pub(crate) fn keep_running(
    stopping: &AtomicBool,
    (name, failure): (&str, &str),
    run: impl Fn() -> Result<Ended>,
) {
    let is_stopping = || stopping.load(Ordering::Relaxed);
    let mut backoff = Backoff::default();
    while !is_stopping() {
        let started = Instant::now();
        let pause = match run() {
            Ok(Ended::NotWanted) => PERIOD,
            Ok(Ended::ByDaemon) => {
                backoff = Backoff::default();
                continue;
            }
            Ok(Ended::ByItself) => {
                let pause = backoff.after(started.elapsed());
                tracing::warn!("{name} has ended; it starts again in {} s", pause.as_secs());
                pause
            }
            Err(error) => {
                tracing::error!("{failure}: {error}");
                backoff.after(started.elapsed())
            }
        };
        let end = Instant::now() + pause;
        while !is_stopping() && Instant::now() < end {
            sleep(PERIOD);
        }
    }
}

/// The next pause, which grows with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Backoff {
    /// Returns the pause after a program that ran for a time.
    fn after(&mut self, ran: Duration) -> Duration {
        let pause = if ran >= STABLE { SHORTEST } else { self.next };
        self.next = (2 * pause).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_program_is_stable() {
        let mut backoff = Backoff::default();
        let short = Duration::from_millis(10);
        let pauses = [0; 10].map(|_| backoff.after(short).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(backoff.after(STABLE), SHORTEST);
        assert_eq!(backoff.after(short), 2 * SHORTEST);
    }
}
