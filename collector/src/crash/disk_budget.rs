//! Divides the free disk space among the bundles that are being written.

use std::sync::{Mutex, PoisonError};

/// Maximum number of bundles that are written at once: for crashes, recorders, functions and
/// snapshot requests.
const MAX_WRITERS: u64 = 10;
/// Bytes that are reserved for each bundle that may start next, on a disk that has enough.
const MIN_GRANT: u64 = 256 << 20;
/// On a small disk the reserve of a bundle is this part of the free bytes: a single bundle can use
/// most of them.
const SMALL_DISK_DIVISOR: u64 = 64;

/// The grants of all bundles that are being written.
#[derive(Debug, Default)]
pub struct DiskBudget(Mutex<Granted>);

#[derive(Debug, Default)]
struct Granted {
    count: u64,
    bytes: u64,
}

/// The bytes that one bundle may use. The grant ends when this is dropped.
#[derive(Debug)]
pub(super) struct DiskGrant<'a> {
    budget: &'a DiskBudget,
    /// The size of the grant in bytes.
    pub(super) bytes: u64,
}

impl DiskBudget {
    /// Grants at most `max_bytes` bytes to a bundle, when `free` bytes are free now. Earlier grants
    /// stay valid, and each later bundle keeps a part. One large bundle therefore leaves room for
    /// others.
    pub(super) fn grant(&self, free: u64, max_bytes: u64) -> DiskGrant<'_> {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let min_grant = MIN_GRANT.min(free / SMALL_DISK_DIVISOR);
        let later = MAX_WRITERS.saturating_sub(granted.count + 1);
        let left = free
            .saturating_sub(granted.bytes)
            .saturating_sub(min_grant.saturating_mul(later));
        let bytes = left.max(min_grant).min(max_bytes);
        granted.count += 1;
        granted.bytes = granted.bytes.saturating_add(bytes);
        drop(granted);
        DiskGrant { budget: self, bytes }
    }
}

impl Drop for DiskGrant<'_> {
    fn drop(&mut self) {
        let mut granted = self.budget.0.lock().unwrap_or_else(PoisonError::into_inner);
        granted.count -= 1;
        granted.bytes = granted.bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn large_disk_grants_full_requests() {
        let budget = DiskBudget::default();
        let all: Vec<_> = (0..MAX_WRITERS)
            .map(|_| budget.grant(1000 * GIB, 9 * GIB))
            .collect();
        assert!(all.iter().all(|grant| grant.bytes == 9 * GIB));
        drop(all);
        assert_eq!(budget.0.lock().unwrap().bytes, 0);
    }

    #[test]
    fn large_bundles_leave_room_for_the_next() {
        let budget = DiskBudget::default();
        let first = budget.grant(20 * GIB, 19 * GIB);
        let second = budget.grant(20 * GIB, 19 * GIB);
        let third = budget.grant(20 * GIB, 19 * GIB);
        assert!(first.bytes > 17 * GIB, "{first:?}");
        assert_eq!((second.bytes, third.bytes), (MIN_GRANT, MIN_GRANT));
        drop(first);
        let next = budget.grant(20 * GIB, 19 * GIB);
        assert!(next.bytes > 17 * GIB, "{next:?}");
    }

    #[test]
    fn small_disk_holds_a_bundle() {
        let budget = DiskBudget::default();
        let grant = budget.grant(6_000_000, 9 * GIB);
        assert!(grant.bytes > 5_000_000, "{grant:?}");
    }

    proptest! {
        #[test]
        fn grants_never_exceed_free_space(
            free in 0u64..1 << 50,
            max_bytes in prop::collection::vec(0u64..1 << 50, 1..=MAX_WRITERS as usize),
        ) {
            let budget = DiskBudget::default();
            let all: Vec<_> = max_bytes.iter().map(|max_bytes| budget.grant(free, *max_bytes)).collect();
            prop_assert!(all.iter().map(|grant| grant.bytes).sum::<u64>() <= free);
            for (grant, max_bytes) in all.iter().zip(max_bytes) {
                prop_assert!(grant.bytes == max_bytes || grant.bytes >= MIN_GRANT.min(free / SMALL_DISK_DIVISOR));
            }
        }
    }
}
