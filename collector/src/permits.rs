//! A semaphore with a limit for each user. One thread takes permits without waiting, and any thread
//! returns them.
//!
//! Permits are counted by user id in a small preallocated table. Taking one neither allocates nor
//! locks nor reads a file. Ids count separately, so each id of a user's subordinate ranges
//! (subuid(5)) has its own limit, within that of all ordinary users.

use crate::quota::Quota;
use crate::users::User;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The semaphore, for the one thread that takes permits.
#[derive(Debug)]
pub(crate) struct UserSemaphore {
    quota: Quota,
    /// The largest id of system users.
    system_max: u32,
    table: Arc<Table>,
}

/// A permit, which is returned when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    table: Arc<Table>,
    slot: usize,
}

/// One slot for each user id with permits. There are at most as many as permits.
#[derive(Debug)]
struct Table(Box<[Slot]>);

/// Only the taking thread writes the user id, and only while the count is zero.
#[derive(Debug, Default)]
struct Slot {
    user: AtomicU32,
    count: AtomicU32,
}

impl UserSemaphore {
    pub(crate) fn new(quota: Quota, system_max: u32) -> Self {
        let slots = (0..quota.all).map(|_| Slot::default());
        Self {
            quota,
            system_max,
            table: Arc::new(Table(slots.collect())),
        }
    }

    /// Takes a permit for a user id. `None`: the id is at its limit, or none is left. Crashes with
    /// an unknown id share one limit.
    pub(crate) fn take(&mut self, user: Option<u32>) -> Option<Permit> {
        let user = user.unwrap_or(User::UNKNOWN.id);
        let (mut all, mut ordinary) = (0, 0);
        let (mut own, mut empty) = (None, None);
        for (index, slot) in self.table.0.iter().enumerate() {
            // Synchronizes with the return of a permit.
            let count = slot.count.load(Ordering::Acquire) as usize;
            if count == 0 {
                empty = empty.or(Some(index));
                continue;
            }
            let id = slot.user.load(Ordering::Relaxed);
            all += count;
            if id > self.system_max {
                ordinary += count;
            }
            if id == user {
                own = Some((index, count));
            }
        }
        let held = own.map_or(0, |(_, count)| count);
        let has_share =
            user <= self.system_max || (held < self.quota.per_user && ordinary < self.quota.ordinary);
        if !has_share || all >= self.quota.all {
            return None;
        }
        // The id in its slot stays correct even if the last permit is returned now.
        let index = own.map(|(index, _)| index).or(empty)?;
        let slot = self.table.0.get(index)?;
        slot.user.store(user, Ordering::Relaxed);
        slot.count.fetch_add(1, Ordering::Relaxed);
        Some(Permit {
            table: Arc::clone(&self.table),
            slot: index,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(slot) = self.table.0.get(self.slot) {
            slot.count.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn semaphore(all: usize) -> UserSemaphore {
        UserSemaphore::new(Quota::quarters(all), 999)
    }

    /// Takes permits for a user until none is left.
    fn all_of(semaphore: &mut UserSemaphore, user: Option<u32>) -> Vec<Permit> {
        std::iter::from_fn(|| semaphore.take(user)).collect()
    }

    #[test]
    fn user_has_a_quarter_and_system_users_the_reserve() {
        let mut semaphore = semaphore(16);
        let first = all_of(&mut semaphore, Some(1000));
        assert_eq!(first.len(), 4);
        let unknown = all_of(&mut semaphore, None);
        assert_eq!(unknown.len(), 4);
        let others: Vec<Permit> = (2000..2100)
            .filter_map(|user| semaphore.take(Some(user)))
            .collect();
        assert_eq!(others.len(), 4, "ordinary users have three quarters together");
        let root = all_of(&mut semaphore, Some(0));
        assert_eq!(root.len(), 4);
        assert!(semaphore.take(Some(999)).is_none());
        drop(first);
        assert_eq!(all_of(&mut semaphore, Some(0)).len(), 4, "permits are returned");
    }

    #[test]
    fn slots_are_reused() {
        let mut semaphore = semaphore(8);
        for user in 1000..100_000 {
            assert_eq!(all_of(&mut semaphore, Some(user)).len(), 2);
        }
    }

    #[test]
    fn permits_returned_by_another_thread_are_counted() {
        let mut semaphore = semaphore(64);
        let (give, taken) = mpsc::sync_channel::<Permit>(64);
        std::thread::scope(|scope| {
            scope.spawn(move || taken.into_iter().for_each(drop));
            for number in 0..200_000_u32 {
                if let Some(permit) = semaphore.take(Some(1000 + number % 7)) {
                    give.send(permit).unwrap();
                }
            }
            drop(give);
        });
        let counts = semaphore
            .table
            .0
            .iter()
            .map(|slot| slot.count.load(Ordering::Relaxed));
        assert_eq!(counts.sum::<u32>(), 0);
        assert_eq!(all_of(&mut semaphore, Some(1000)).len(), 16);
    }
}
