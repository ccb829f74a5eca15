//! A lock-free queue from the probe reader to the thread that delivers crashes. Its buffers are
//! allocated in advance and divided by user.
//!
//! The probe reader takes an empty buffer, fills it and pushes it. Another thread may be preempted
//! while it holds the lock of the pending crashes or of the allocator. The probe reader must never
//! wait for such a thread.

use super::state::DaemonState;
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

/// Maximum number of crashes in the queue.
const BUFFERS: usize = IN_FLIGHT.all;
/// How the buffers are divided by user.
pub(super) const IN_FLIGHT: Quota = Quota::quarters(256);
// The buffers are locked memory, and every page is touched.
const _: () = assert!(BUFFERS * BUFFER < 8 << 20);

/// A probe event in its buffer.
#[derive(Debug, Default)]
pub(super) struct ProbeEvent {
    pub(super) raw: RawEvent,
    /// When the event was read (`CLOCK_MONOTONIC`).
    pub(super) read_at: u64,
    /// Counts against the events in flight.
    pub(super) permit: Option<Permit>,
    pub(super) frozen: Option<(Frozen, Permit)>,
}

/// The queue.
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
        // The queue has exactly this capacity, so no push fails.
        (0..BUFFERS).for_each(|_| drop(queue.free.push(Box::default())));
        queue
    }

    /// Returns an empty buffer. `None`: all are in use.
    pub(super) fn empty_buffer(&self) -> Option<Box<ProbeEvent>> {
        self.free.pop()
    }

    /// Returns a buffer to the empty ones.
    fn recycle(&self, buffer: Box<ProbeEvent>) {
        drop(self.free.push(buffer));
    }

    /// Appends an event.
    pub(super) fn push(&self, event: Box<ProbeEvent>) {
        drop(self.filled.push(event));
        self.wake();
    }

    /// Marks the end of the queue.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(consumer) = self.consumer.get() {
            consumer.unpark();
        }
    }

    /// Waits for the next event. Only one thread may call this. `None`: the queue is closed and
    /// empty.
    fn pop(&self) -> Option<Box<ProbeEvent>> {
        self.consumer.get_or_init(thread::current);
        loop {
            // Read before the queue, because the last event is pushed before the queue is closed.
            let closed = self.closed.load(Ordering::Acquire);
            match self.filled.pop() {
                Some(event) => return Some(event),
                None if closed => return None,
                None => thread::park(),
            }
        }
    }
}

/// Delivers the events of the queue to the pending crashes, until the queue is closed.
pub(super) fn deliver(shared: &DaemonState, queue: &CrashQueue) {
    let saver = &shared.saver;
    while let Some(mut event) = queue.pop() {
        let (frozen, frozen_permit) = event.frozen.take().unzip();
        let (sample, read_at, permit) = (event.raw.parse(), event.read_at, event.permit.take());
        queue.recycle(event);
        // Dropped after the buffer is returned, so that a permit guarantees a buffer.
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

/// Returns the user who owns a crash. If the probe does not report the user id, the process may
/// still exist and show it.
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
    fn events_arrive_in_order_and_buffers_are_reused() {
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
    fn buffers_are_limited() {
        let queue = CrashQueue::new();
        let taken: Vec<_> = std::iter::from_fn(|| queue.empty_buffer()).collect();
        assert_eq!(taken.len(), BUFFERS);
        taken.into_iter().for_each(|buffer| queue.push(buffer));
        assert_eq!(queue.filled.len(), BUFFERS);
    }
}
