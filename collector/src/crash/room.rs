//! Sharing the room on the spool's disk among the bundles that are being written.

use std::sync::{Mutex, PoisonError};

/// Bundles that may be written at once: those of the workers, of recorders, of functions, and those
/// that somebody asked for.
const PLACES: u64 = 10;
/// What stays for each bundle that might be begun next, unless that is more than its part of the
/// disk.
const LEAST: u64 = 256 << 20;

/// What was promised to bundles that are being written.
#[derive(Debug, Default)]
pub struct Promises(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    count: u64,
    bytes: u64,
}

/// How much a bundle may take. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct Promise<'a> {
    promises: &'a Promises,
    /// Bytes.
    pub(super) bytes: u64,
}

impl Promises {
    /// Promises `most` bytes or less to a bundle, where `room` bytes are free now. What was promised
    /// before stays, and a part for each bundle that may be begun later, so that one large bundle
    /// leaves room for those of others.
    pub(super) fn promise(&self, room: u64, most: u64) -> Promise<'_> {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let least = LEAST.min(room / PLACES);
        let later = PLACES.saturating_sub(given.count + 1);
        let left = room
            .saturating_sub(given.bytes)
            .saturating_sub(least.saturating_mul(later));
        let bytes = left.max(least).min(most);
        given.count += 1;
        given.bytes = given.bytes.saturating_add(bytes);
        drop(given);
        Promise {
            promises: self,
            bytes,
        }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut given = self.promises.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.count -= 1;
        given.bytes = given.bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn large_disk_gives_what_is_asked() {
        let promises = Promises::default();
        let all: Vec<_> = (0..PLACES)
            .map(|_| promises.promise(1000 * GIB, 9 * GIB))
            .collect();
        assert!(all.iter().all(|promise| promise.bytes == 9 * GIB));
        drop(all);
        assert_eq!(promises.0.lock().unwrap().bytes, 0);
    }

    #[test]
    fn large_bundles_leave_room_for_the_next() {
        let promises = Promises::default();
        let first = promises.promise(10 * GIB, 9 * GIB);
        let second = promises.promise(10 * GIB, 9 * GIB);
        let third = promises.promise(10 * GIB, 9 * GIB);
        assert!(first.bytes > 7 * GIB, "{first:?}");
        assert_eq!((second.bytes, third.bytes), (LEAST, LEAST));
        drop(first);
        let next = promises.promise(10 * GIB, 9 * GIB);
        assert!(next.bytes > 7 * GIB, "{next:?}");
    }

    proptest! {
        #[test]
        fn never_more_is_promised_than_is_there(
            room in 0u64..1 << 50,
            most in prop::collection::vec(0u64..1 << 50, 1..=PLACES as usize),
        ) {
            let promises = Promises::default();
            let all: Vec<_> = most.iter().map(|most| promises.promise(room, *most)).collect();
            prop_assert!(all.iter().map(|promise| promise.bytes).sum::<u64>() <= room);
            for (promise, most) in all.iter().zip(most) {
                prop_assert!(promise.bytes == most || promise.bytes >= LEAST.min(room / PLACES));
            }
        }
    }
}
