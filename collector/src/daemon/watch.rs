//! The thread that matters most: it reads what the probe tells, at once.

use super::Shared;
use crate::clock;
use crate::crash::Sighting;
use crate::history::History;
use crate::probe::Probe;
use crate::realtime;
use backtrail_pt::Tid;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::sync::PoisonError;

/// Copies of all traces that wait to be written, at most: they take memory.
const MOST_FROZEN: usize = 4;

/// Reads until the other end of `stop` is closed.
pub(super) fn run(shared: &Shared, mut probe: Probe, stop: &PipeReader) {
    let saver = &shared.saver;
    let priority = saver
        .config
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .crash
        .priority;
    if let Err(error) = realtime::prioritize(Tid(0), priority) {
        tracing::warn!(
            "no real-time priority for the crash watch ({error}): crashes are read later under load"
        );
    }
    let freezer = saver.history.as_ref().map(History::freezer);
    for tid in freezer.iter().flat_map(|freezer| freezer.threads()) {
        // What copies is as urgent as what asks for it.
        let _ = realtime::prioritize(*tid, priority);
    }
    loop {
        {
            let mut waited: Vec<PollFd<'_>> = probe
                .descriptors()
                .into_iter()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            waited.push(PollFd::new(stop.as_fd(), PollFlags::POLLIN));
            let _ = poll(&mut waited, PollTimeout::NONE);
            let stopped = waited.last().and_then(PollFd::any).unwrap_or(false);
            if stopped {
                return;
            }
        }
        probe.drain(&mut |seen| {
            let read_at = clock::monotonic();
            saver.metrics.crashes_seen.count();
            // One that had to go for it was one of a storm.
            let frozen = freezer
                .as_ref()
                .filter(|_| saver.sightings.frozen() < MOST_FROZEN)
                .map(|freezer| freezer.freeze(Some(seen.cpu), Some(seen.at)));
            let sighting = Sighting {
                seen,
                read_at,
                frozen,
            };
            if saver.sightings.add(sighting).is_some() {
                saver.metrics.crashes_limited.count();
            }
        });
        saver.metrics.probe_lost.set(probe.lost());
    }
}
