//! The interface of a processor's trace that the freezer uses.

use backtrail_perf::Error;
use backtrail_perf::ring::AuxCopy;
use backtrail_pt::Cpu;
use std::fmt::Debug;

/// The trace of a processor that can be paused and copied.
pub(super) trait FreezableTrace: Debug + Send + Sync {
    /// Returns the processor.
    fn cpu(&self) -> Cpu;

    /// Returns the buffer size for [`Self::copy`] in bytes.
    fn size(&self) -> usize;

    /// Returns whether the kernel itself pauses this trace at a crash.
    fn pauses_in_kernel(&self) -> bool;

    /// Records that the processor went offline. The kernel has stopped the trace and will not
    /// resume it.
    fn mark_offline(&self);

    /// Returns when the processor went offline, by `CLOCK_MONOTONIC`.
    fn offline_since(&self) -> Option<u64>;

    /// Stops the trace. Returns whether it was running until now.
    fn pause(&self) -> bool;

    /// Returns whether the kernel had paused the trace before. Called once for each pause.
    fn paused_by_kernel(&self) -> bool;

    /// Returns whether the kernel has paused the trace since the last call and no freeze followed.
    /// This means that no one saved the crash.
    fn pause_is_stale(&self) -> bool;

    /// Copies the content of the trace while it is paused.
    fn copy(&self, buffer: &mut [u8]) -> Result<AuxCopy, Error>;

    /// Resumes the trace. Returns whether this succeeded.
    fn resume(&self, paused_by_kernel: bool) -> bool;
}
