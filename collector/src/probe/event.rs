//! An event of the probe, copied from its ring and not yet parsed. Copying neither allocates nor
//! waits.

use super::{CrashSample, MAX_STACK, perf_sample};
use backtrail_pt::{Cpu, Pid};
use std::os::fd::BorrowedFd;

/// Maximum bytes of an event without its stack, except for very long call chains.
const MAX_OTHER_BYTES: usize = 4096;
/// Bytes of a buffer.
pub(crate) const BUFFER: usize = MAX_STACK + MAX_OTHER_BYTES;

/// A reusable buffer for one event.
#[derive(Debug)]
pub struct RawEvent {
    /// The time of the crash, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// The processor that the process ran on.
    pub cpu: Cpu,
    /// The process.
    pub pid: Pid,
    /// The real user id of the crashed thread in the initial user namespace, if the probe reports
    /// it.
    pub user: Option<u32>,
    pub(super) layout: Layout,
    pub(super) bytes: Vec<u8>,
}

/// The format of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The eBPF program: [`backtrail_bpf::CrashEvent`] and a stack.
    Bpf,
    /// A perf event: `PERF_RECORD_SAMPLE`.
    Sample,
}

impl Default for RawEvent {
    /// An empty buffer whose memory is touched.
    fn default() -> Self {
        Self {
            at: 0,
            cpu: Cpu(0),
            pid: Pid(0),
            user: None,
            layout: Layout::Bpf,
            bytes: vec![0xff; BUFFER],
        }
    }
}

impl RawEvent {
    /// Parses the event, which allocates. `None`: the event is truncated.
    #[must_use]
    pub fn parse(&self) -> Option<CrashSample> {
        match self.layout {
            Layout::Bpf => CrashSample::parse(&self.bytes),
            Layout::Sample => perf_sample::parse(&self.bytes),
        }
    }
}

/// A source of crash events.
pub(super) trait EventSource: Send {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
    fn next(&mut self, event: &mut RawEvent) -> bool;
    fn lost(&self) -> u64;
}
