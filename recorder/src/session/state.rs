//! State of a session that its modules share.

use crate::ptrace::RawTid;
use crate::translate::ParentState;
use backtrail_bundle::BundlePath;
use std::collections::HashMap;

/// New threads, matched with their parents.
#[derive(Debug, Default)]
pub(super) struct PendingClones {
    /// Threads that their parents have reported, but that have not stopped yet.
    pub(super) expected: HashMap<RawTid, ParentState>,
    /// Threads that have stopped before their parents reported them.
    pub(super) early: Vec<RawTid>,
    /// The packet files of threads.
    pub(super) files: HashMap<RawTid, BundlePath>,
}

/// An ended thread whose packets are stored.
#[derive(Debug)]
pub(super) struct EndedThread {
    pub(super) pid: RawTid,
    /// The packet file, which identifies the thread.
    pub(super) file: BundlePath,
    pub(super) bytes: usize,
}
