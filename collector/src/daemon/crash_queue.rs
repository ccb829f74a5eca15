//! From the thread that must not wait to the one that may: crashes in buffers made beforehand, shared out by user.
//!
//! The watch takes a buffer, fills it and hands it on, by queues without locks; whoever holds a lock of the sightings, or of
//! the allocator, may have been put aside by the scheduler, and the watch must not wait for him.

use super::DaemonState;
use crate::crash::PendingCrash;
use crate::hardware::Frozen;
use crate::permits::Permit;
use crate::probe::{BUFFER, CrashSample, RawEvent};
use crate::quota::Quota;
use crate::users::{User, Users};
use backtrail_process::RawTid;
use crossbeam_queue::ArrayQueue;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// How many crashes may be on their way.
const BUFFERS: usize = IN_FLIGHT.all;
/// Whose they may be.
pub(super) const IN_FLIGHT: Quota = Quota::quarters(256);
// They are locked memory, and all touched.
const _: () = assert!(BUFFERS * BUFFER < 8 << 20);

/// A crash as the watch caught it.
#[derive(Debug, Default)]
pub(super) struct ProbeEvent {
    pub(super) raw: RawEvent,
    /// When it was read (`CLOCK_MONOTONIC`).
    pub(super) read_at: u64,
    /// Among those on their way.
    pub(super) permit: Option<Permit>,
    pub(super) frozen: Option<(Frozen, Permit)>,
}

/// The way from the one thread to the other.
#[derive(Debug)]
pub(super) struct CrashQueue {
    free: ArrayQueue<Box<ProbeEvent>>,
    filled: ArrayQueue<Box<ProbeEvent>>,
    consumer: OnceLock<Thread>,
    closed: AtomicBool,
}

impl CrashQueue {
    pub(super) fn new() -> Self {
        let queue = Self {
            free: ArrayQueue::new(BUFFERS),
            filled: ArrayQueue::new(BUFFERS),
            consumer: OnceLock::new(),
            closed: AtomicBool::new(false),
        };
        // Exactly as many as there is room for: none is dropped here.
        (0..BUFFERS).for_each(|_| drop(queue.free.push(Box::default())));
        queue
    }

    /// An empty buffer; `None`: all are on their way.
    pub(super) fn empty_buffer(&self) -> Option<Box<ProbeEvent>> {
        self.free.pop()
    }

    /// Gives back one that is to be filled again.
    fn recycle(&self, buffer: Box<ProbeEvent>) {
        drop(self.free.push(buffer));
    }

    /// Hands a crash on.
    pub(super) fn push(&self, event: Box<ProbeEvent>) {
        drop(self.filled.push(event));
        self.wake();
    }

    /// There will be no more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(consumer) = self.consumer.get() {
            consumer.unpark();
        }
    }

    /// Waits for the next crash, on the one thread that tells of them; `None`: there will be none.
    fn pop(&self) -> Option<Box<ProbeEvent>> {
        self.consumer.get_or_init(thread::current);
        loop {
            // Looked at before the queue, for the last crash is handed on before it is closed.
            let closed = self.closed.load(Ordering::Acquire);
            match self.filled.pop() {
                Some(event) => return Some(event),
                None if closed => return None,
                None => thread::park(),
            }
        }
    }
}

/// Tells of what was caught, until there will be no more.
pub(super) fn deliver(shared: &DaemonState, queue: &CrashQueue) {
    let saver = &shared.saver;
    while let Some(mut event) = queue.pop() {
        let (frozen, frozen_permit) = event.frozen.take().unzip();
        let (sample, read_at, permit) = (event.raw.parse(), event.read_at, event.permit.take());
        queue.recycle(event);
        // Who has a place finds a buffer.
        drop(permit);
        let crash = sample.map(|sample| PendingCrash {
            user: owner_of(&saver.users, &sample),
            sample,
            read_at,
            frozen,
            frozen_permit,
        });
        if saver.pending.deliver(crash).is_some() {
            saver.metrics.crashes_limited.count();
        }
    }
}

/// The user that answers for a crash. Where the probe does not tell the user id, the process may still be there to look at.
fn owner_of(users: &Users, sample: &CrashSample) -> User {
    match sample.user {
        Some(id) => users.owner_of(id),
        None => users.of_thread(sample.tid.0 as RawTid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_arrives_in_order_and_buffers_come_back() {
        const CRASHES: u64 = 20 * BUFFERS as u64;
        let queue = CrashQueue::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..CRASHES {
                    let mut buffer = loop {
                        match queue.empty_buffer() {
                            Some(buffer) => break buffer,
                            None => thread::yield_now(),
                        }
                    };
                    buffer.read_at = number;
                    queue.push(buffer);
                }
                queue.close();
            });
            let mut arrived = Vec::new();
            while let Some(event) = queue.pop() {
                arrived.push(event.read_at);
                queue.recycle(event);
            }
            assert!(arrived.into_iter().eq(0..CRASHES));
        });
        assert_eq!((queue.free.len(), queue.filled.len()), (BUFFERS, 0));
    }

    #[test]
    fn storm_of_one_user_leaves_buffers_to_others() {
        let queue = CrashQueue::new();
        let mut semaphore = crate::permits::UserSemaphore::new(IN_FLIGHT, 999);
        let mut push_one = |user| {
            let Some(permit) = semaphore.take(Some(user)) else {
                return false;
            };
            let mut buffer = queue.empty_buffer().unwrap();
            buffer.permit = Some(permit);
            queue.push(buffer);
            true
        };
        let storm = (0..1000).filter(|_| push_one(1000)).count();
        let others = (1001..3000).filter(|user| push_one(*user)).count();
        let root = (0..1000).filter(|_| push_one(0)).count();
        assert_eq!((storm, others, root), (64, 128, 64));
    }

    #[test]
    fn there_are_only_so_many_buffers() {
        let queue = CrashQueue::new();
        let taken: Vec<_> = std::iter::from_fn(|| queue.empty_buffer()).collect();
        assert_eq!(taken.len(), BUFFERS);
        taken.into_iter().for_each(|buffer| queue.push(buffer));
        assert_eq!(queue.filled.len(), BUFFERS);
    }
}
