//! What the hardware source counts, for those who watch the collector.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often things happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records of the sideband that were read.
    pub records: u64,
    /// Records that the kernel dropped because a ring was full.
    pub lost: u64,
    /// Records that could not be read.
    pub malformed: u64,
    /// Pieces of trace whose end was lost because a buffer was full.
    pub truncated: u64,
    /// Pieces of trace with gaps, for a hypervisor used the hardware.
    pub partial: u64,
    /// Pieces of trace that collided with another user of the hardware.
    pub collided: u64,
    /// Processors that came.
    pub cpus_came: u64,
    /// Processors that went.
    pub cpus_went: u64,
    /// Processors that are traced now.
    pub cpus_traced: u64,
    /// How often a processor came whose PMU was found taken by somebody else.
    pub busy: u64,
    /// Traces that were frozen.
    pub freezes: u64,
    /// Traces that were paused by the kernel itself at a crash.
    pub paused_by_kernel: u64,
    /// Copies for which no locked buffer was left.
    pub buffers_missing: u64,
    /// Times that a trace could not be started again.
    pub resume_failures: u64,
    /// Bytes that the history takes.
    pub history_bytes: u64,
}

/// The counters that several threads count.
#[derive(Debug, Default)]
pub(super) struct SharedCounters {
    pub(super) freezes: AtomicU64,
    pub(super) paused_by_kernel: AtomicU64,
    pub(super) buffers_missing: AtomicU64,
    pub(super) resume_failures: AtomicU64,
}

impl SharedCounters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
