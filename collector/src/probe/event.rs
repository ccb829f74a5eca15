//! An event of the probe, taken out of its ring and not yet taken apart: into memory that is there, without waiting.

use super::{CrashSample, MAX_STACK, perf};
use backtrail_pt::{Cpu, Pid};

/// What an event holds besides the stack, at most, but for the longest call chains.
const REST: usize = 4096;
/// Bytes of a buffer.
pub(crate) const BUFFER: usize = MAX_STACK + REST;

/// A buffer for one event after the other.
#[derive(Debug)]
pub struct RawEvent {
    /// Of the crash, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// That the process ran on.
    pub cpu: Cpu,
    /// The process.
    pub pid: Pid,
    /// The real user id of the thread that takes the signal, in the first user namespace, where the probe told it.
    pub user: Option<u32>,
    pub(super) layout: Layout,
    pub(super) bytes: Vec<u8>,
}

/// Who wrote an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The eBPF program: [`backtrail_bpf::CrashEvent`] and a stack.
    Bpf,
    /// A perf event: `PERF_RECORD_SAMPLE`.
    Sample,
}

impl Default for RawEvent {
    /// An empty one, whose memory has been touched.
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
    /// Takes it apart, which allocates; `None`: it is cut short.
    #[must_use]
    pub fn parse(&self) -> Option<CrashSample> {
        match self.layout {
            Layout::Bpf => CrashSample::parse(&self.bytes),
            Layout::Sample => perf::sample(&self.bytes),
        }
    }
}
