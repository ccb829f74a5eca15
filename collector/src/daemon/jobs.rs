//! Accepts crashes: each process is held and put into the queue of its user.

use super::queue::FairQueue;
use super::state::DaemonState;
use crate::clock;
use crate::crash::{HeldProcess, HoldRequest, Holder, PendingCrash};
use crate::pattern::Specifiers;
use backtrail_pt::Pid;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A crash to be saved.
#[derive(Debug)]
pub(super) enum Job {
    /// A process that is held.
    Held(Arc<HeldProcess>),
    /// The probe's data of a process that is not held.
    Unheld(Box<PendingCrash>),
}

impl Job {
    /// Returns whether only the probe's data exists.
    pub(super) fn is_unheld(&self) -> bool {
        matches!(self, Self::Unheld(_))
    }
}

/// The jobs of all users.
pub(super) type Jobs = FairQueue<Job>;

/// A crashing process as it arrives at the daemon.
pub(super) struct IncomingCrash {
    pub(super) crash: Specifiers,
    /// The read end of the core.
    pub(super) core: OwnedFd,
    pub(super) holder: Holder,
    /// When the request arrived (`CLOCK_MONOTONIC`).
    pub(super) received: u64,
}

/// Holds a process until it is saved. Releases it at once if a recorder claims it, if its crash is
/// filtered out, or if its user has too many waiting crashes.
pub(super) fn accept_held(shared: &DaemonState, jobs: &Jobs, incoming: IncomingCrash) {
    let IncomingCrash {
        crash,
        core,
        holder,
        received,
    } = incoming;
    let user = shared.saver.users.owner_of(crash.uid);
    if shared.claimed.is_claimed(crash.pid) {
        // The recorder saves this crash. Dropping the connection lets the handler continue.
        return;
    }
    let limit = shared.saver.config().crash.hold_limit.0;
    let held = Arc::new(HeldProcess::new(HoldRequest {
        crash,
        core,
        holder,
        user,
        received,
        limit,
        chain: shared.saver.chain,
    }));
    shared.held.add(&held);
    if !shared.saver.wants(&held) {
        release(shared, &held);
        return;
    }
    let waited = Duration::from_nanos(clock::monotonic().saturating_sub(received));
    let deadline = Instant::now() + limit.saturating_sub(waited);
    if let Err(refused) = jobs.push(user, deadline, Job::Held(held)) {
        shared.saver.metrics.crashes_limited.count();
        match refused.item {
            Job::Held(held) => {
                tracing::debug!(
                    "user {} has too many held processes; releasing {}",
                    held.user.id,
                    held.crash.pid
                );
                release(shared, &held);
            }
            Job::Unheld(_) => {}
        }
    }
}

/// Releases a process that is not saved, and discards its probe event.
fn release(shared: &DaemonState, held: &HeldProcess) {
    held.release(None);
    let _ = shared.saver.pending.take(Pid(held.crash.pid), Duration::ZERO);
}

/// Queues a crash of a process that was not held.
pub(super) fn accept_unheld(shared: &DaemonState, jobs: &Jobs, crash: PendingCrash) {
    let user = crash.user;
    let deadline = Instant::now() + Duration::from_secs(60);
    if jobs.push(user, deadline, Job::Unheld(Box::new(crash))).is_err() {
        shared.saver.metrics.crashes_limited.count();
    }
}
