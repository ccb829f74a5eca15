//! Clocks, in nanoseconds.

use nix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns `CLOCK_MONOTONIC`, which the probe's events also carry.
#[must_use]
pub fn monotonic() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
    })
}

/// Returns the wall clock since 1970. It can be set at any time, so it neither measures nor orders
/// anything.
#[must_use]
pub fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the wall clock time of a moment of [`monotonic`], if the clock was not set since.
#[must_use]
pub fn wall_at(moment: u64) -> u64 {
    wall().saturating_sub(monotonic().saturating_sub(moment))
}
