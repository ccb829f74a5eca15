//! The time of the system.

use backtrail_profile::UnixNanos;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the present time. Before 1970, it is 0.
pub(crate) fn now() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
