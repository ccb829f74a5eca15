//! The most urgent thread: it reads probe events at once, and waits for nothing but the probe.

use super::crash_queue::{CrashQueue, IN_FLIGHT, ProbeEvent};
use super::state::DaemonState;
use crate::clock;
use crate::crash::FROZEN_QUOTA;
use crate::error::{Error, Result};
use crate::hardware::Freezer;
use crate::history::History;
use crate::permits::UserSemaphore;
use crate::probe::Probe;
use crate::realtime;
use backtrail_pt::Tid;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io::PipeReader;
use std::os::fd::AsFd;

/// Marks the stop pipe in the events of `epoll`.
const STOPPED: u64 = 1;

/// Waits for the probe, or for the stop pipe to close.
pub(super) struct Poller(Epoll);

impl Poller {
    /// Registers the descriptors of the probe and the stop pipe.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn new(probe: &Probe, stop: &PipeReader) -> Result<Self> {
        let failed = || Error::system("wait for crashes");
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed())?;
        let readable = |what| EpollEvent::new(EpollFlags::EPOLLIN, what);
        for descriptor in probe.descriptors() {
            epoll.add(descriptor, readable(!STOPPED)).map_err(failed())?;
        }
        epoll
            .add(stop.as_fd(), EpollEvent::new(EpollFlags::EPOLLHUP, STOPPED))
            .map_err(failed())?;
        Ok(Self(epoll))
    }

    /// Waits for an event. Returns `false` at the end.
    fn wait_for_crashes(&self) -> bool {
        let mut events = [EpollEvent::empty(); 8];
        // An interrupted wait causes one read of an empty ring.
        let ready = self.0.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        !events.iter().take(ready).any(|event| event.data() == STOPPED)
    }
}

/// Reads events until the stop pipe closes.
pub(super) fn run(shared: &DaemonState, mut probe: Probe, poller: &Poller, queue: &CrashQueue) {
    let saver = &shared.saver;
    let freezer = saver.history.as_ref().map(History::freezer);
    let system_max = saver.users.system_max();
    let mut in_flight = UserSemaphore::new(IN_FLIGHT, system_max);
    let mut frozen = UserSemaphore::new(FROZEN_QUOTA, system_max);
    // The user of a crash is known only after it is read, so the reader needs one buffer more than
    // the queue.
    let mut event = Box::<ProbeEvent>::default();
    raise_priority(shared, freezer.as_ref());
    while poller.wait_for_crashes() {
        let mut limited = 0;
        loop {
            let began = clock::monotonic();
            if !probe.next(&mut event.raw) {
                saver.pending.progress.record_empty(began);
                break;
            }
            event.read_at = clock::monotonic();
            saver.metrics.crashes_seen.count();
            let user = event.raw.user;
            let permit = in_flight.take(user);
            let Some((permit, empty)) = permit.and_then(|permit| Some((permit, queue.empty_buffer()?)))
            else {
                limited += 1;
                continue;
            };
            let (cpu, at) = (event.raw.cpu, event.raw.at);
            event.frozen = freezer.as_ref().and_then(|freezer| {
                let permit = frozen.take(user)?;
                Some((freezer.freeze(Some(cpu), Some(at)), permit))
            });
            event.permit = Some(permit);
            saver.pending.progress.count_read();
            queue.push(std::mem::replace(&mut event, empty));
        }
        saver.metrics.crashes_limited.add(limited);
        saver.metrics.probe_lost.set(probe.lost());
    }
    queue.close();
}

/// Sets a real-time priority for this thread and for the threads that copy traces.
fn raise_priority(shared: &DaemonState, freezer: Option<&Freezer>) {
    let priority = shared.saver.config().crash.priority;
    if let Err(error) = realtime::prioritize(Tid(0), priority) {
        tracing::warn!(
            "no real-time priority for the probe reader ({error}): load may delay the reading of crashes"
        );
    }
    for tid in freezer.into_iter().flat_map(Freezer::threads) {
        // The copying threads must be as urgent as this thread, which waits for them.
        let _ = realtime::prioritize(*tid, priority);
    }
}
