//! Crashes that the probe has seen, until the handler asks about them.

use crate::hardware::Frozen;
use crate::probe::CrashSeen;
use backtrail_pt::Pid;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A crash as the probe saw it.
#[derive(Debug)]
pub struct Sighting {
    /// What the kernel told.
    pub seen: CrashSeen,
    /// When it was read (`CLOCK_MONOTONIC`).
    pub read_at: u64,
    /// The processors' traces, paused and copied then; `None`: they are not traced, or had just been copied.
    pub frozen: Option<Frozen>,
}

/// How many wait at most: in a storm the oldest go.
const ROOM: usize = 256;

/// The crashes that nobody has asked about yet, in the order they were seen.
#[derive(Debug, Default)]
pub struct Sightings {
    waiting: Mutex<Vec<(Instant, Sighting)>>,
    arrived: Condvar,
    /// How many of them have traces: read without a lock.
    frozen: AtomicUsize,
}

impl Sightings {
    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Sighting)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; one that had to go for it is given back.
    pub fn add(&self, sighting: Sighting) -> Option<Sighting> {
        let mut waiting = self.lock();
        let gone = (waiting.len() >= ROOM).then(|| waiting.remove(0).1);
        waiting.push((Instant::now(), sighting));
        self.count_frozen(&waiting);
        self.arrived.notify_all();
        gone
    }

    /// The crash of a process, waiting for it no longer than `patience`.
    pub fn take(&self, pid: Pid, patience: Duration) -> Option<Sighting> {
        let deadline = Instant::now() + patience;
        let mut waiting = self.lock();
        loop {
            if let Some(index) = waiting.iter().position(|(_, sighting)| sighting.seen.pid == pid) {
                let found = waiting.remove(index).1;
                self.count_frozen(&waiting);
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let woken = self.arrived.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Those of processes that nobody will ask about any more: they are gone, or `age` has passed.
    pub fn overdue(&self, age: Duration) -> Vec<Sighting> {
        /// Between the last look of a handler's job and the end of its process.
        const GONE: Duration = Duration::from_secs(1);
        let is_gone = |pid: Pid| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        let mut waiting = self.lock();
        let (overdue, kept): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|(since, sighting)| {
            since.elapsed() >= age || (since.elapsed() >= GONE && is_gone(sighting.seen.pid))
        });
        *waiting = kept;
        self.count_frozen(&waiting);
        overdue.into_iter().map(|(_, sighting)| sighting).collect()
    }

    fn count_frozen(&self, waiting: &[(Instant, Sighting)]) {
        let frozen = waiting
            .iter()
            .filter(|(_, sighting)| sighting.frozen.is_some())
            .count();
        self.frozen.store(frozen, Ordering::Relaxed);
    }

    /// How many of those that wait have traces, which take memory. Waits for nobody.
    #[must_use]
    pub fn frozen(&self) -> usize {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
