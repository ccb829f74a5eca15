//! From the thread that must not wait to the one that may: crashes in buffers made beforehand, shared out by user.
//!
//! The watch takes a buffer, fills it and hands it on, by queues without locks; whoever holds a lock of the sightings, or of
//! the allocator, may have been put aside by the scheduler, and the watch must not wait for him.

use super::Shared;
use crate::crash::Sighting;
use crate::hardware::Frozen;
use crate::places::Place;
use crate::probe::{BUFFER, CrashSeen, Event};
use crate::share::Shares;
use crate::users::{User, Users};
use backtrail_process::RawTid;
use crossbeam_queue::ArrayQueue;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// How many crashes may be on their way.
const BUFFERS: usize = ON_THEIR_WAY.all;
/// Whose they may be.
pub(super) const ON_THEIR_WAY: Shares = Shares::quarters(256);
// They are locked memory, and all touched.
const _: () = assert!(BUFFERS * BUFFER < 8 << 20);

/// A crash as the watch caught it.
#[derive(Debug, Default)]
pub(super) struct Caught {
    pub(super) event: Event,
    /// When it was read (`CLOCK_MONOTONIC`).
    pub(super) read_at: u64,
    /// Among those on their way.
    pub(super) place: Option<Place>,
    pub(super) frozen: Option<(Frozen, Place)>,
}

/// The way from the one thread to the other.
#[derive(Debug)]
pub(super) struct Relay {
    free: ArrayQueue<Box<Caught>>,
    caught: ArrayQueue<Box<Caught>>,
    teller: OnceLock<Thread>,
    closed: AtomicBool,
}

impl Relay {
    pub(super) fn new() -> Self {
        let relay = Self {
            free: ArrayQueue::new(BUFFERS),
            caught: ArrayQueue::new(BUFFERS),
            teller: OnceLock::new(),
            closed: AtomicBool::new(false),
        };
        // Exactly as many as there is room for: none is dropped here.
        (0..BUFFERS).for_each(|_| drop(relay.free.push(Box::default())));
        relay
    }

    /// An empty buffer; `None`: all are on their way.
    pub(super) fn buffer(&self) -> Option<Box<Caught>> {
        self.free.pop()
    }

    /// Gives back one that is to be filled again.
    fn put_back(&self, buffer: Box<Caught>) {
        drop(self.free.push(buffer));
    }

    /// Hands a crash on.
    pub(super) fn hand_on(&self, caught: Box<Caught>) {
        drop(self.caught.push(caught));
        self.wake();
    }

    /// There will be no more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(teller) = self.teller.get() {
            teller.unpark();
        }
    }

    /// Waits for the next crash, on the one thread that tells of them; `None`: there will be none.
    fn next(&self) -> Option<Box<Caught>> {
        self.teller.get_or_init(thread::current);
        loop {
            // Looked at before the queue, for the last crash is handed on before it is closed.
            let closed = self.closed.load(Ordering::Acquire);
            match self.caught.pop() {
                Some(caught) => return Some(caught),
                None if closed => return None,
                None => thread::park(),
            }
        }
    }
}

/// Tells of what was caught, until there will be no more.
pub(super) fn tell(shared: &Shared, relay: &Relay) {
    let saver = &shared.saver;
    while let Some(mut caught) = relay.next() {
        let (frozen, frozen_place) = caught.frozen.take().unzip();
        let (seen, read_at, place) = (caught.event.parse(), caught.read_at, caught.place.take());
        relay.put_back(caught);
        // Who has a place finds a buffer.
        drop(place);
        let sighting = seen.map(|seen| Sighting {
            user: answering(&saver.users, &seen),
            seen,
            read_at,
            frozen,
            frozen_place,
        });
        if saver.sightings.deliver(sighting).is_some() {
            saver.metrics.crashes_limited.count();
        }
    }
}

/// The user that answers for a crash. Where the probe does not tell the user id, the process may still be there to look at.
fn answering(users: &Users, seen: &CrashSeen) -> User {
    match seen.user {
        Some(id) => users.answering(id),
        None => users.of_thread(seen.tid.0 as RawTid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_arrives_in_order_and_buffers_come_back() {
        const CRASHES: u64 = 20 * BUFFERS as u64;
        let relay = Relay::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..CRASHES {
                    let mut buffer = loop {
                        match relay.buffer() {
                            Some(buffer) => break buffer,
                            None => thread::yield_now(),
                        }
                    };
                    buffer.read_at = number;
                    relay.hand_on(buffer);
                }
                relay.close();
            });
            let mut arrived = Vec::new();
            while let Some(caught) = relay.next() {
                arrived.push(caught.read_at);
                relay.put_back(caught);
            }
            assert!(arrived.into_iter().eq(0..CRASHES));
        });
        assert_eq!((relay.free.len(), relay.caught.len()), (BUFFERS, 0));
    }

    #[test]
    fn storm_of_one_user_leaves_buffers_to_others() {
        let relay = Relay::new();
        let mut places = crate::places::Places::new(ON_THEIR_WAY, 999);
        let mut handed_on = |user| {
            let Some(place) = places.take(Some(user)) else {
                return false;
            };
            let mut buffer = relay.buffer().unwrap();
            buffer.place = Some(place);
            relay.hand_on(buffer);
            true
        };
        let storm = (0..1000).filter(|_| handed_on(1000)).count();
        let others = (1001..3000).filter(|user| handed_on(*user)).count();
        let root = (0..1000).filter(|_| handed_on(0)).count();
        assert_eq!((storm, others, root), (64, 128, 64));
    }

    #[test]
    fn there_are_only_so_many_buffers() {
        let relay = Relay::new();
        let taken: Vec<_> = std::iter::from_fn(|| relay.buffer()).collect();
        assert_eq!(taken.len(), BUFFERS);
        taken.into_iter().for_each(|buffer| relay.hand_on(buffer));
        assert_eq!(relay.caught.len(), BUFFERS);
    }
}
