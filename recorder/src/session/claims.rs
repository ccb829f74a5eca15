//! System calls of translated threads that concern the recorder itself.

use super::translated::{TranslatedThread, translated_thread};
use super::{Hold, Session};
use crate::error::Result;
use crate::ptrace::{self, RawTid};
use crate::thread::{FollowMode, RunState};
use backtrail_bundle::core::Registers;
use std::rc::Rc;

/// The length of SYSCALL.
const SYSCALL_LEN: u64 = 2;

impl Session<'_> {
    /// Handles a system call that claims the recorder's memory, or that traces processes. The
    /// thread has the program's registers.
    pub(super) fn on_recorder_call(&mut self, tid: RawTid) -> Result<()> {
        let registers = ptrace::registers(tid)?;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.run = RunState::Stopped;
        }
        if self.is_held(tid) {
            // The call is found again when the thread continues.
            return Ok(());
        }
        let is_of_tracer = [libc::SYS_ptrace, libc::SYS_wait4].contains(&(registers.rax as libc::c_long));
        if is_of_tracer {
            if self.on_tracing_call(tid, &registers)? {
                return Ok(());
            }
        } else if !self.vacate(tid, &registers)? {
            if let Some(TranslatedThread {
                translated, encoders, ..
            }) = translated_thread(&mut self.threads, &self.encoders, tid)
            {
                translated.complete_call(&registers, -i64::from(libc::ENOMEM), encoders)?;
            }
            self.resume_thread(tid);
            return Ok(());
        }
        let Some(TranslatedThread {
            translated, encoders, ..
        }) = translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(());
        };
        let next = registers.rip.wrapping_add(SYSCALL_LEN);
        let action = translated.begin_syscall(&registers, next, encoders)?;
        self.resume_after_trap(tid, action)
    }

    /// Moves the recorder's memory away from the addresses that a system call needs. Returns
    /// `false` if that is impossible.
    fn vacate(&mut self, tid: RawTid, registers: &Registers) -> Result<bool> {
        if self.shares_cache(tid) {
            self.unshare(tid, registers)?;
        }
        let Some((pid, space)) = self.space(tid) else {
            return Ok(false);
        };
        if self.hold != Hold::Nobody {
            return Ok(false);
        }
        self.halt(Hold::Process(pid))?;
        let threads = self.tids(|thread| match &thread.mode {
            FollowMode::Translated(other) => Rc::ptr_eq(&other.space, &space),
            _ => false,
        });
        let others: Vec<RawTid> = threads.into_iter().filter(|other| *other != tid).collect();
        let translated = |tid: &RawTid| match self.threads.get(tid).map(|thread| &thread.mode) {
            Some(FollowMode::Translated(translated)) => Some(translated),
            _ => None,
        };
        let can_move = others
            .iter()
            .filter_map(translated)
            .all(|other| !other.is_in_cache());
        let regions = others
            .iter()
            .filter_map(translated)
            .map(|other| other.shared_region())
            .collect();
        let moved = match translated_thread(&mut self.threads, &self.encoders, tid) {
            Some(TranslatedThread { translated, .. }) if can_move => translated.vacate(registers, regions),
            _ => Ok(()),
        };
        self.hold = Hold::Nobody;
        let added = self.added(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.image.added = added;
        }
        others.into_iter().for_each(|other| self.resume_thread(other));
        if !can_move {
            self.notes.push(format!(
                "process {pid} could not map memory at addresses that the recorder uses and cannot leave"
            ));
        }
        moved.map(|()| can_move)
    }

    /// Returns whether a thread is stopped.
    pub(super) fn is_stopped(&self, tid: RawTid) -> bool {
        self.threads
            .get(&tid)
            .is_some_and(|thread| thread.run == RunState::Stopped)
    }
}
