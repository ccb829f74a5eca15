//! What can be frozen: the trace of a processor, as the freezer sees it.

use backtrail_perf::Error;
use backtrail_perf::ring::AuxCopy;
use backtrail_pt::Cpu;
use std::fmt::Debug;

/// The trace of a processor.
pub(super) trait FreezableTrace: Debug + Send + Sync {
    /// The processor.
    fn cpu(&self) -> Cpu;

    /// How large a buffer [`Self::copy`] needs, in bytes.
    fn size(&self) -> usize;

    /// Whether the kernel itself pauses this trace at a crash.
    fn pauses_in_kernel(&self) -> bool;

    /// Notes that the processor went: the kernel has stopped the trace, and will not start it again.
    fn mark_offline(&self);

    /// When the processor went, by `CLOCK_MONOTONIC`.
    fn offline_since(&self) -> Option<u64>;

    /// Stops the trace; `true`, when it wrote until now.
    fn pause(&self) -> bool;

    /// Whether the kernel paused it before we did; asked once for each pause.
    fn paused_by_kernel(&self) -> bool;

    /// Whether the kernel has had it paused since this was last asked, and nobody froze it: a crash that nobody wanted.
    fn pause_is_stale(&self) -> bool;

    /// Copies what it holds, while it is paused.
    fn copy(&self, buffer: &mut [u8]) -> Result<AuxCopy, Error>;

    /// Starts the trace again; `false`, when that failed.
    fn resume(&self, paused_by_kernel: bool) -> bool;
}
