//! Bundles of recorders that wait to be unpacked. They have their own threads, so that no crash
//! waits for them.

use super::queue::{FairQueue, QueueLimits};
use super::state::DaemonState;
use crate::crash::{Deposit, SaveOutcome};
use crate::error::{Error, Result};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Threads that unpack bundles.
pub(super) const THREADS: usize = 2;
/// One bundle of each user at once, and one thread that is reserved for system users.
const LIMITS: QueueLimits = QueueLimits {
    capacity: 32,
    running: THREADS,
    running_of_user: 1,
    running_reserve: 1,
};
/// How long a bundle may wait.
const WAIT: Duration = Duration::from_secs(60);

/// A bundle and the channel for its result.
#[derive(Debug)]
pub(super) struct PendingDeposit {
    deposit: Deposit,
    answer: Sender<Result<SaveOutcome>>,
}

/// The waiting bundles of all users.
#[derive(Debug)]
pub(super) struct DepositQueue(FairQueue<PendingDeposit>);

impl DepositQueue {
    pub(super) fn new() -> Self {
        Self(FairQueue::new(LIMITS))
    }

    /// Queues a bundle and waits until it is saved.
    ///
    /// # Errors
    /// When the file is not a bundle of its process, or when space or time is exhausted.
    pub(super) fn save(&self, deposit: Deposit) -> Result<SaveOutcome> {
        let (answer, saved) = channel();
        let user = deposit.user;
        let pending = PendingDeposit { deposit, answer };
        let refused = || Error::Unable("too many bundles are waiting to be unpacked".to_owned());
        // Dropping a refused bundle drops its channel too.
        if let Err(other) = self.0.push(user, Instant::now() + WAIT, pending)
            && other.user == user
        {
            return Err(refused());
        }
        saved.recv().map_err(|_| refused())?
    }

    /// Saves bundles until [`Self::close`].
    pub(super) fn run(&self, shared: &DaemonState) {
        while let Some((user, pending)) = self.0.pop() {
            // The waiting thread may have given up.
            let _ = pending.answer.send(shared.saver.save_deposit(pending.deposit));
            self.0.done(user);
        }
    }

    /// Refuses bundles that have waited too long.
    pub(super) fn expire(&self) {
        drop(self.0.overdue(Instant::now()));
    }

    /// Accepts no more bundles.
    pub(super) fn close(&self) {
        self.0.close();
    }
}
