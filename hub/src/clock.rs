//! The wall clock, in the unit of all times of the hub.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds of one second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds of one hour.
pub const HOUR: i64 = 3600 * SECOND;
/// Microseconds of one day.
pub const DAY: i64 = 24 * HOUR;

/// Returns the time now in microseconds since 1970.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
