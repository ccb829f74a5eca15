//! The data of a written history for the manifest of a bundle.

use backtrail_bundle::manifest::{AddressFilter, CpuTrace, Process};
use backtrail_pt::{Cpu, CpuModel, TimingParams, TscConversion};

/// The cost of freezing a processor's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCost {
    /// The processor.
    pub cpu: Cpu,
    /// Bytes of the trace.
    pub bytes: usize,
    /// Whether the ring was full, so that older trace was overwritten.
    pub wrapped: bool,
    /// From the crash to the pause, in nanoseconds. `None`: the time of the crash is unknown.
    pub crash_to_pause: Option<u64>,
    /// Maximum bytes that were written from the crash to the pause. If the ring was full, as many
    /// of the oldest bytes were overwritten. `None`: unknown.
    pub written_since_crash: Option<usize>,
    /// How long tracing was paused, in nanoseconds. `None`: the trace was not resumed.
    pub paused_for: Option<u64>,
    /// Whether the kernel itself paused the trace at the crash.
    pub paused_by_kernel: bool,
}

/// The parameters of the machine that a decoder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedMachine {
    /// The conversion from TSC to perf's clock.
    pub tsc: TscConversion,
    /// The timing parameters of the trace.
    pub timing: TimingParams,
    /// The processor.
    pub cpu: CpuModel,
}

/// The data for the manifest of a bundle.
#[derive(Clone, Debug)]
pub struct WrittenHistory {
    /// The traces by processor.
    pub cpus: Vec<CpuTrace>,
    /// The clocks and the processor.
    pub machine: TracedMachine,
    /// The traced address ranges. Empty: all addresses.
    pub filters: Vec<AddressFilter>,
    /// The processes with their threads and modules.
    pub processes: Vec<Process>,
    /// The cost of freezing.
    pub costs: Vec<CpuCost>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
}
