//! A sample whose stack an eBPF program has walked.

use backtrail_bpf::SampleEvent;
use backtrail_perf::sample::Sample;

/// A sample whose stack an eBPF program has walked.
#[derive(Clone, Debug)]
pub struct WalkedSample {
    /// The thread, time and processor.
    pub sample: Sample,
    /// The stack.
    pub stack: SampleEvent,
}
