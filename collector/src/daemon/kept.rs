//! Processes that crash, as they come in: each is kept, wanted or not, and put into the queue of
//! its user.

use super::Shared;
use super::queue::FairQueue;
use crate::clock;
use crate::crash::{Hold, Sighting, Waiting};
use crate::pattern::Specifiers;
use backtrail_pt::Pid;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is to be saved.
#[derive(Debug)]
pub(super) enum Job {
    /// A process that is kept.
    Held(Arc<Hold>),
    /// A process that was not kept: what the probe saw of it.
    Unheld(Box<Sighting>),
}

impl Job {
    /// Whether all that is known is what the probe saw.
    pub(super) fn is_unheld(&self) -> bool {
        matches!(self, Self::Unheld(_))
    }
}

/// The jobs of all users.
pub(super) type Jobs = FairQueue<Job>;

/// Keeps a process until it is saved, or lets it go at once: when a recorder has it, when it is not
/// wanted, or when its user has too many waiting.
pub(super) fn keep(shared: &Shared, jobs: &Jobs, crash: Specifiers, kept: (OwnedFd, Waiting), received: u64) {
    let pid = crash.pid;
    let user = shared.saver.users.answering(crash.uid);
    if shared.minded.has(pid) {
        // Its recorder has all of it; the handler goes on as the connection ends.
        return;
    }
    let limit = shared.saver.config().crash.hold_limit.0;
    let hold = Hold::new(crash, kept, user, (received, limit), shared.saver.chain);
    let hold = Arc::new(hold);
    shared.holds.add(&hold);
    if !shared.saver.wants(&hold) {
        let_go(shared, &hold);
        return;
    }
    let waited = Duration::from_nanos(clock::monotonic().saturating_sub(received));
    let deadline = Instant::now() + limit.saturating_sub(waited);
    if let Err(refused) = jobs.push(user, deadline, Job::Held(hold)) {
        shared.saver.metrics.crashes_limited.count();
        match refused.item {
            Job::Held(hold) => {
                tracing::debug!(
                    "too many processes of user {} are kept; {} is let go",
                    hold.user.id,
                    hold.crash.pid
                );
                let_go(shared, &hold);
            }
            Job::Unheld(_) => {}
        }
    }
}

/// Lets a process go that is not saved. What the probe saw of it is not saved either.
fn let_go(shared: &Shared, hold: &Hold) {
    hold.release(None);
    let _ = shared.saver.sightings.take(Pid(hold.crash.pid), Duration::ZERO);
}

/// Has the processes saved that were not kept.
pub(super) fn save_unheld(shared: &Shared, jobs: &Jobs, sighting: Sighting) {
    let user = sighting.user;
    let deadline = Instant::now() + Duration::from_secs(60);
    if jobs
        .push(user, deadline, Job::Unheld(Box::new(sighting)))
        .is_err()
    {
        shared.saver.metrics.crashes_limited.count();
    }
}
