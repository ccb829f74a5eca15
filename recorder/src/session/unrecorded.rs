//! Processes whose programs are not recorded ([`crate::ProgramFilter`]).
//!
//! They run without translation, and stop only when they start a process, execute a program, get a
//! signal or end. A program to record may be executed by any of their descendants.

use super::Session;
use crate::error::Result;
use crate::ptrace::{self, RawTid, Stop};
use backtrail_process::status;
use std::collections::HashMap;

/// The threads that run without being recorded, with their processes.
#[derive(Debug, Default)]
pub(super) struct Unrecorded(HashMap<RawTid, RawTid>);

impl Unrecorded {
    /// Removes a thread. Returns whether it was there.
    pub(super) fn remove(&mut self, tid: RawTid) -> bool {
        self.0.remove(&tid).is_some()
    }

    /// Removes a thread that has ended. Returns whether its process has ended too.
    pub(super) fn ends_with(&mut self, tid: RawTid) -> bool {
        self.0.remove(&tid) == Some(tid)
    }

    /// Returns the processes, several times if they have several threads.
    pub(super) fn pids(&self) -> impl Iterator<Item = RawTid> + '_ {
        self.0.values().copied()
    }
}

impl Session<'_> {
    /// Returns whether a thread runs without being recorded.
    pub(super) fn is_unrecorded(&self, tid: RawTid) -> bool {
        self.unrecorded.0.contains_key(&tid)
    }

    /// Follows a new thread of a process that is not recorded, or a new process that such a process
    /// has started. Returns whether it is one.
    pub(super) fn is_new_unrecorded(&mut self, tid: RawTid) -> bool {
        if self.settings.only.is_empty()
            || self.pending_clones.expected.contains_key(&tid)
            || self.attached.contains(&tid)
        {
            return false;
        }
        let pid = status::thread_group(tid).unwrap_or(tid);
        let parent = status::parent_and_owner(pid)[0] as RawTid;
        let is_recorded = |pid: &RawTid| self.processes.contains_key(pid);
        if is_recorded(&pid) || pid == tid && is_recorded(&parent) {
            return false;
        }
        self.unrecorded.0.insert(tid, pid);
        true
    }

    /// Handles a stop of a thread that is not recorded.
    pub(super) fn on_unrecorded(&mut self, tid: RawTid, stop: Stop) -> Result<()> {
        match stop {
            Stop::Signal(signal) => ptrace::resume(tid, signal),
            Stop::Group(_) if !self.is_over => ptrace::listen(tid),
            _ => ptrace::resume(tid, 0),
        }
    }

    /// Handles the exec of a program by a process, whose old program is gone. Returns whether the
    /// new one is not recorded.
    pub(super) fn executes_unrecorded(&mut self, pid: RawTid) -> bool {
        if self.settings.only.is_empty() {
            return false;
        }
        // Another thread than the first may have called exec. It has the id of the process now.
        if let Ok(former) = ptrace::event_message(pid) {
            self.unrecorded.remove(former as RawTid);
        }
        self.unrecorded.remove(pid);
        if self.settings.only.selects(pid) {
            return false;
        }
        self.remove_process(pid);
        self.unrecorded.0.insert(pid, pid);
        true
    }
}
