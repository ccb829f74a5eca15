//! The thread that matters most: it reads what the probe tells, at once, and waits for nobody but the probe.

use super::Shared;
use super::relay::{Caught, ON_THEIR_WAY, Relay};
use crate::clock;
use crate::crash::FROZEN;
use crate::error::{Error, Result};
use crate::hardware::Freezer;
use crate::history::History;
use crate::places::Places;
use crate::probe::Probe;
use crate::realtime;
use backtrail_pt::Tid;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io::PipeReader;
use std::os::fd::AsFd;

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
    let system_max = saver.users.system_max();
    let mut on_their_way = Places::new(ON_THEIR_WAY, system_max);
    let mut frozen = Places::new(FROZEN, system_max);
    // Whose crash it is shows once it is read: one buffer more than may be on their way.
    let mut caught = Box::<Caught>::default();
    hurry(shared, freezer.as_ref());
    while wait.for_crashes() {
        let mut limited = 0;
        loop {
            let began = clock::monotonic();
            if !probe.next(&mut caught.event) {
                saver.sightings.progress.record_empty(began);
                break;
            }
            caught.read_at = clock::monotonic();
            saver.metrics.crashes_seen.count();
            let user = caught.event.user;
            let place = on_their_way.take(user);
            let Some((place, empty)) = place.and_then(|place| Some((place, relay.buffer()?))) else {
                limited += 1;
                continue;
            };
            let event = &caught.event;
            caught.frozen = freezer.as_ref().and_then(|freezer| {
                let place = frozen.take(user)?;
                Some((freezer.freeze(Some(event.cpu), Some(event.at)), place))
            });
            caught.place = Some(place);
            saver.sightings.progress.count_read();
            relay.hand_on(std::mem::replace(&mut caught, empty));
        }
        saver.metrics.crashes_limited.add(limited);
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
