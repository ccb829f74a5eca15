//! The state that all threads of the daemon share.

use super::claimed::ClaimedProcesses;
use crate::clock;
use crate::crash::{HeldProcesses, SaveOutcome, Saver, SnapshotRequest};
use crate::error::Result;
use crate::history::History;
use crate::runtime::Runtime;
use backtrail_pt::Pid;
use std::time::Instant;

/// The state that the threads share.
#[derive(Debug)]
pub(super) struct DaemonState {
    pub(super) saver: Saver,
    pub(super) started: Instant,
    pub(super) runtime: Runtime,
    pub(super) claimed: ClaimedProcesses,
    /// The processes that are held.
    pub(super) held: HeldProcesses,
}

impl DaemonState {
    /// Saves a running process, or the traces of all processors.
    pub(super) fn snapshot(&self, pid: Option<Pid>) -> Result<SaveOutcome> {
        let freezer = self.saver.history.as_ref().map(History::freezer);
        self.saver.save_snapshot(&SnapshotRequest {
            pid,
            trigger: "snapshot",
            note: None,
            at: clock::monotonic(),
            frozen: freezer.map(|freezer| freezer.freeze(None, None)),
        })
    }
}
