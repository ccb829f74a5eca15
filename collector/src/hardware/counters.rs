//! The counters of the Intel PT source, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sideband records that were read.
    pub records: u64,
    /// Records that the kernel dropped because a ring was full.
    pub lost: u64,
    /// Records that could not be parsed.
    pub malformed: u64,
    /// Trace chunks whose end was lost because a buffer was full.
    pub truncated: u64,
    /// Trace chunks with gaps because a hypervisor used the hardware.
    pub partial: u64,
    /// Trace chunks that collided with another user of the hardware.
    pub collided: u64,
    /// Processors that went online.
    pub cpus_onlined: u64,
    /// Processors that went offline.
    pub cpus_offlined: u64,
    /// Processors that are traced now.
    pub cpus_traced: u64,
    /// Processors that went online while another program used the PMU.
    pub busy: u64,
    /// Freezes.
    pub freezes: u64,
    /// Traces that the kernel itself paused at a crash.
    pub paused_by_kernel: u64,
    /// Copies without a locked buffer.
    pub buffers_missing: u64,
    /// Traces that could not be resumed.
    pub resume_failures: u64,
    /// Bytes of the sideband history.
    pub history_bytes: u64,
}

/// The counters that several threads update.
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
