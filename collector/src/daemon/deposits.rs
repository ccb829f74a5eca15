//! Bundles that recorders hand in, and that wait to be unpacked. They have workers of their own, so
//! that no crash waits for them.

use super::DaemonState;
use super::queue::{FairQueue, QueueLimits};
use crate::crash::{Deposit, SaveOutcome};
use crate::error::{Error, Result};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Threads that unpack.
pub(super) const THREADS: usize = 2;
/// One for each user, and one that system users can always have.
const LIMITS: QueueLimits = QueueLimits {
    capacity: 32,
    running: THREADS,
    running_of_user: 1,
    running_reserve: 1,
};
/// How long a bundle may wait.
const WAIT: Duration = Duration::from_secs(60);

/// A bundle, and where the answer goes.
#[derive(Debug)]
pub(super) struct PendingDeposit {
    deposit: Deposit,
    answer: Sender<Result<SaveOutcome>>,
}

/// The bundles of all users.
#[derive(Debug)]
pub(super) struct DepositQueue(FairQueue<PendingDeposit>);

impl DepositQueue {
    pub(super) fn new() -> Self {
        Self(FairQueue::new(LIMITS))
    }

    /// Has a bundle saved in its user's turn, and waits for that.
    ///
    /// # Errors
    /// When it is no bundle of its process, or there is no room or no time for it.
    pub(super) fn save(&self, deposit: Deposit) -> Result<SaveOutcome> {
        let (answer, saved) = channel();
        let user = deposit.user;
        let pending = PendingDeposit { deposit, answer };
        let refused = || Error::Unable("too many bundles wait to be unpacked".to_owned());
        // The sender of a bundle that is refused is dropped with it.
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
            // Who waited may be gone.
            let _ = pending.answer.send(shared.saver.save_deposit(pending.deposit));
            self.0.done(user);
        }
    }

    /// Refuses those that have waited too long.
    pub(super) fn expire(&self) {
        drop(self.0.overdue(Instant::now()));
    }

    /// Takes no more bundles.
    pub(super) fn close(&self) {
        self.0.close();
    }
}
