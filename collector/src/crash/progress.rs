//! The progress of the probe's events, for threads that wait for one of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts events on their way from the probe to the [`PendingCrashes`](super::PendingCrashes). The
/// counters are lock-free.
#[derive(Debug, Default)]
pub struct Progress {
    /// When the last read started that found no event (`CLOCK_MONOTONIC`).
    emptied: AtomicU64,
    read: AtomicU64,
    delivered: AtomicU64,
}

impl Progress {
    /// Counts an event that was read and will be delivered.
    pub fn count_read(&self) {
        self.read.fetch_add(1, Ordering::Release);
    }

    /// Records that no event was unread at a time after `began`.
    pub fn record_empty(&self, began: u64) {
        self.emptied.store(began, Ordering::Release);
    }

    /// Counts an event that was added to the pending crashes, or was discarded.
    pub fn count_delivered(&self) {
        self.delivered.fetch_add(1, Ordering::Release);
    }

    /// Returns whether all events before `time` are read.
    #[must_use]
    pub fn has_read_all_before(&self, time: u64) -> bool {
        self.emptied.load(Ordering::Acquire) >= time
    }

    /// Returns how many events are read.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// Returns how many of the events that were read are delivered, in order.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Acquire)
    }
}
