//! The thread that matters most: it reads what the probe tells, at once, and waits for nobody but the probe.

use super::Shared;
use super::relay::{Caught, Relay};
use crate::clock;
use crate::error::{Error, Result};
use crate::hardware::Freezer;
use crate::history::History;
use crate::probe::Probe;
use crate::realtime;
use backtrail_pt::Tid;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io::PipeReader;
use std::os::fd::AsFd;

/// Copies of all traces that wait to be written, at most: they take memory.
const MOST_FROZEN: usize = 4;
/// What `epoll` says of the end.
const STOPPED: u64 = 1;

/// What is waited for: the probe, and the other end of a pipe being closed.
pub(super) struct Wait(Epoll);

impl Wait {
    /// # Errors
    /// When the kernel has no room for it.
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

    /// `false`: it is the end.
    fn for_crashes(&self) -> bool {
        let mut events = [EpollEvent::empty(); 8];
        // Interrupted, it looks once more for nothing.
        let ready = self.0.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        !events.iter().take(ready).any(|event| event.data() == STOPPED)
    }
}

/// Reads until it is the end.
pub(super) fn run(shared: &Shared, mut probe: Probe, wait: &Wait, relay: &Relay) {
    let saver = &shared.saver;
    let freezer = saver.history.as_ref().map(History::freezer);
    hurry(shared, freezer.as_ref());
    // For those that come when all buffers are on their way.
    let mut spare = Box::<Caught>::default();
    while wait.for_crashes() {
        let mut untold = 0;
        loop {
            let mut caught = match relay.buffer() {
                Some(buffer) => buffer,
                None if probe.next(&mut spare.event) => {
                    untold += 1;
                    continue;
                }
                None => break,
            };
            if !probe.next(&mut caught.event) {
                relay.put_back(caught);
                break;
            }
            caught.read_at = clock::monotonic();
            saver.metrics.crashes_seen.count();
            let event = &caught.event;
            caught.frozen = freezer
                .as_ref()
                .filter(|_| saver.sightings.frozen() + relay.on_their_way() < MOST_FROZEN)
                .map(|freezer| freezer.freeze(Some(event.cpu), Some(event.at)));
            relay.hand_on(caught);
        }
        saver.metrics.crashes_seen.add(untold);
        saver.metrics.crashes_limited.add(untold);
        saver.metrics.probe_lost.set(probe.lost());
    }
    relay.close();
}

/// Takes a real-time priority, for itself and those who copy traces for it.
fn hurry(shared: &Shared, freezer: Option<&Freezer>) {
    let priority = shared.saver.config().crash.priority;
    if let Err(error) = realtime::prioritize(Tid(0), priority) {
        tracing::warn!(
            "no real-time priority for the crash watch ({error}): crashes are read later under load"
        );
    }
    for tid in freezer.into_iter().flat_map(Freezer::threads) {
        // What copies is as urgent as what asks for it.
        let _ = realtime::prioritize(*tid, priority);
    }
}
