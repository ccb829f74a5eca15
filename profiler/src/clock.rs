//! The clock of records, the time of day, and the processor time of the recorder.

use backtrail_profile::UnixNanos;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The difference between perf's clock and the time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset: u64,
}

impl Clock {
    /// Returns the difference at this moment.
    pub fn now() -> Self {
        Self {
            offset: nanos(ClockId::CLOCK_REALTIME).saturating_sub(monotonic()),
        }
    }

    /// Returns the time of day at a time of perf's clock.
    pub fn unix(self, time: u64) -> UnixNanos {
        UnixNanos(time.saturating_add(self.offset))
    }
}

/// Returns the time of perf's clock, which is `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).map(|time| Duration::from(time).as_nanos());
    time.map_or(0, |nanos| u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns the processor time of this process.
pub(crate) fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    let micros = usage.map_or(0, |usage| {
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
    });
    Duration::from_micros(micros.cast_unsigned())
}

/// Returns the processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    Duration::from_nanos(nanos(ClockId::CLOCK_THREAD_CPUTIME_ID))
}
