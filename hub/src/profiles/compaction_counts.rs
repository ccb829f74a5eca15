//! Counters of compactions, for metrics.

use backtrail_store::{Compacted, Error};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of compactions.
#[derive(Debug, Default)]
pub struct CompactionCounts {
    /// Segments that were written.
    pub written: AtomicU64,
    /// Segments that were replaced.
    pub replaced: AtomicU64,
    /// Samples of the segments that were written.
    pub samples: AtomicU64,
    /// Bytes of the segments that were written.
    pub bytes: AtomicU64,
    /// Compactions whose work another hub had done.
    pub conflicts: AtomicU64,
    /// Compactions that failed.
    pub failed: AtomicU64,
    /// The time of all compactions in milliseconds.
    pub milliseconds: AtomicU64,
}

impl CompactionCounts {
    pub(super) fn add(&self, done: &std::result::Result<Option<Compacted>, Error>, elapsed: Duration) {
        let add = |counter: &AtomicU64, number: u64| counter.fetch_add(number, Ordering::Relaxed);
        match done {
            Ok(None) => return,
            Ok(Some(Compacted { removed, added })) => {
                add(&self.written, 1);
                add(&self.replaced, removed.len() as u64);
                add(&self.samples, added.samples.rows);
                add(&self.bytes, added.bytes());
            }
            Err(Error::Conflict { .. }) => {
                add(&self.conflicts, 1);
            }
            Err(_) => {
                add(&self.failed, 1);
            }
        }
        let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        add(&self.milliseconds, elapsed);
    }
}
