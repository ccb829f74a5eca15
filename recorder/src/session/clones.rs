//! New threads of engine `translate`: matches them with their parents, and starts to translate
//! them.

use super::lifecycle::USER_CS;
use super::translated::{TranslatedThread, translated_thread};
use super::{Hold, Session};
use crate::error::{Error, Result};
use crate::ptrace::{self, RawTid, Stop};
use crate::recorded::RecordedProcess;
use crate::signal_state;
use crate::stepped::restarted;
use crate::syscall_filter;
use crate::thread::{FollowMode, RunState, Thread};
use crate::translate::{EncoderPool, TranslateOptions, Translated};
use backtrail_bundle::core::Registers;
use backtrail_process::status;
use backtrail_pt::Pid;
use std::rc::Rc;

impl Session<'_> {
    /// Handles a clone event: matches parent and child.
    pub(super) fn on_clone(&mut self, tid: RawTid) -> Result<()> {
        let Ok(child) = ptrace::event_message(tid) else {
            return Ok(());
        };
        let child = child as RawTid;
        let parent = translated_thread(&mut self.threads, &self.encoders, tid)
            .and_then(|TranslatedThread { translated, .. }| translated.parent_state(child));
        match parent {
            Some(parent) => {
                self.pending_clones.expected.insert(child, parent);
            }
            // The parent was not in the cache, so the child has the program's registers, like an
            // attached thread.
            None => {
                self.attached.insert(child);
            }
        }
        if let Some(index) = self.pending_clones.early.iter().position(|early| *early == child) {
            self.pending_clones.early.swap_remove(index);
            if let Ok(registers) = ptrace::registers(child) {
                return self.on_new_translated(child, Stop::Interrupted, &registers);
            }
        }
        Ok(())
    }

    /// Restores the registers of a new thread after the end of recording.
    pub(super) fn restore_child_registers(&mut self, tid: RawTid, registers: &Registers) {
        if let Some(parent) = self.pending_clones.expected.remove(&tid) {
            let registers = Translated::child_registers(&parent, registers);
            // This fails only if the thread was killed.
            let _ = ptrace::set_registers(tid, &registers);
        }
    }

    /// Removes and returns the stopped threads whose parents are unknown.
    pub(super) fn take_early_clones(&mut self) -> Vec<RawTid> {
        std::mem::take(&mut self.pending_clones.early)
    }

    /// Handles the first stop of a new thread.
    pub(super) fn on_new_translated(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        let pid = status::thread_group(tid).unwrap_or(tid);
        let known = self.processes.contains_key(&pid);
        if stop == Stop::Event(libc::PTRACE_EVENT_EXIT) {
            // The thread was killed before its first stop. If it were not resumed, it would block
            // the recording forever.
            self.pending_clones.expected.remove(&tid);
            self.pending_clones.early.retain(|early| *early != tid);
            self.attached.remove(&tid);
            return ptrace::resume(tid, 0);
        }
        let attached = self.attached.remove(&tid);
        let Some(parent) = self.pending_clones.expected.remove(&tid) else {
            if attached {
                return self.translate_attached(tid, pid, stop, registers);
            }
            self.pending_clones.early.push(tid);
            return Ok(());
        };
        if !known && !self.settings.follow {
            let registers = Translated::child_registers(&parent, registers);
            let _ = ptrace::set_registers(tid, &registers);
            self.detach_thread(tid);
            return Ok(());
        }
        if !known {
            let process = match self.processes.get(&parent.pid) {
                Some(known) => RecordedProcess::forked(pid, parent.areas(), known),
                None => RecordedProcess::new(pid, parent.areas(), &self.files),
            };
            self.add_process(pid, process);
        }
        let storage = self.packet_storage(tid)?;
        let Some(encoders) = &mut self.encoders else {
            return Ok(());
        };
        let program_registers = Translated::child_registers(&parent, registers);
        let translated = match Translated::started(tid, pid, parent, registers, encoders, storage) {
            Ok(translated) => translated,
            Err(error) => return self.fall_back_to_stepping(tid, pid, &program_registers, &error),
        };
        let translated = FollowMode::Translated(Box::new(translated));
        self.threads.insert(tid, Thread::new(tid, pid, translated));
        self.update_added(pid);
        self.resume_thread(tid);
        Ok(())
    }

    fn update_added(&mut self, pid: RawTid) {
        let added = self.added(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.image.added = added;
        }
    }

    /// Starts to record a thread that was running before the recorder attached.
    fn translate_attached(
        &mut self,
        tid: RawTid,
        pid: RawTid,
        stop: Stop,
        registers: &Registers,
    ) -> Result<()> {
        let known = self.processes.contains_key(&pid);
        if !known && !self.settings.follow {
            self.detach_thread(tid);
            return Ok(());
        }
        if registers.cs != USER_CS {
            return Err(Error::Not64Bit(Pid(pid as u32)));
        }
        if !known {
            let process = RecordedProcess {
                shared_memory: self.without_shared_memory(),
                ..RecordedProcess::new(pid, Vec::new(), &self.files)
            };
            self.add_process(pid, process);
        }
        if let Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) =
            stop
        {
            self.on_clone(tid)?;
        }
        if let Stop::Group(_) = stop {
            let mut thread = Thread::new(tid, pid, FollowMode::AwaitingUserCode);
            thread.run = RunState::Listening;
            self.threads.insert(tid, thread);
            self.note_once(format!(
                "process {pid} was stopped by a signal; its recording begins when it continues"
            ));
            return ptrace::listen(tid);
        }
        if !matches!(stop, Stop::Interrupted) {
            // The first stop has another cause: the requested one comes later.
            self.attached.insert(tid);
            let signal = if let Stop::Signal(signal) = stop {
                signal
            } else {
                0
            };
            return ptrace::resume(tid, signal);
        }
        self.threads
            .insert(tid, Thread::new(tid, pid, FollowMode::AwaitingUserCode));
        self.start_translating(tid, registers)
    }

    /// Handles stops of a thread between exec and its first user instruction.
    pub(super) fn on_awaiting_user_code(
        &mut self,
        tid: RawTid,
        stop: Stop,
        registers: &Registers,
    ) -> Result<()> {
        match stop {
            Stop::Signal(libc::SIGTRAP) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.signals.forced |= signal_state::bit(libc::SIGTRAP);
                }
                self.start_translating(tid, registers)
            }
            Stop::Event(libc::PTRACE_EVENT_EXIT) => self.on_exit(tid, registers),
            Stop::Signal(_) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.signal = ptrace::siginfo(tid).ok();
                }
                self.resume_thread(tid);
                Ok(())
            }
            Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) => {
                self.on_clone(tid)?;
                self.resume_thread(tid);
                Ok(())
            }
            Stop::Group(_) if self.hold == Hold::Nobody => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.run = RunState::Listening;
                }
                ptrace::listen(tid)
            }
            _ => {
                self.resume_thread(tid);
                Ok(())
            }
        }
    }

    /// Starts translating a thread in user code, or falls back to stepping if that is impossible.
    fn start_translating(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let Some(pid) = self.threads.get(&tid).map(|thread| thread.pid) else {
            return Ok(());
        };
        if self.encoders.is_none() {
            self.encoders = Some(EncoderPool::start(self.settings.encoder, self.others())?);
        }
        let storage = self.packet_storage(tid)?;
        let existing = self.threads.values().find_map(|thread| match &thread.mode {
            FollowMode::Translated(translated) if thread.pid == pid => {
                Some((Rc::clone(&translated.space), translated.memory))
            }
            _ => None,
        });
        let options = TranslateOptions {
            calls: self.settings.encoder.compress_returns,
            rseq: !self.owns_program,
            superblock: self.settings.all_superblocks,
            room: self.settings.cache,
            keeps_dumpable: self.settings.emulates_dumpable,
            heap: self.settings.heap,
            values: self.settings.values,
            standard_error: self.settings.standard_error,
            calls_in_place: self
                .process_states
                .get(&pid)
                .is_some_and(|state| state.filters_addresses)
                || syscall_filter::has_filter_of_addresses(tid),
        };
        self.note_shared_mappings(pid);
        let Some(encoders) = &mut self.encoders else {
            return Ok(());
        };
        let translated = match existing {
            Some((space, memory)) => Translated::join(tid, pid, space, memory, registers, encoders, storage),
            None => {
                let store = self.store.as_ref();
                Translated::first(tid, pid, registers, options, store, encoders, storage)
            }
        };
        match translated {
            Ok(translated) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.mode = FollowMode::Translated(Box::new(translated));
                }
                self.update_added(pid);
                if !self.owns_program {
                    self.read_actions(tid)?;
                }
                self.resume_thread(tid);
                Ok(())
            }
            Err(error) => self.fall_back_to_stepping(tid, pid, registers, &error),
        }
    }

    /// Steps a thread that could not be prepared for translation.
    fn fall_back_to_stepping(
        &mut self,
        tid: RawTid,
        pid: RawTid,
        registers: &Registers,
        error: &Error,
    ) -> Result<()> {
        let signals = self.threads.remove(&tid).map(|thread| thread.signals);
        // A thread that was killed in the meantime needs nothing.
        if ptrace::registers(tid).is_err() {
            return Ok(());
        }
        let _ = ptrace::set_registers(tid, &restarted(registers));
        self.remove_file(tid);
        let note = format!(
            "thread {tid} of process {pid} cannot be translated ({error}); single-stepping it instead, which is slow"
        );
        self.notes.push(note);
        self.forget_shared_memory(pid);
        if let Some(signals) = signals {
            let _ = ptrace::set_signal_mask(tid, signals.mask);
        }
        self.on_new_stepped(tid, Stop::Interrupted, registers)
    }
}
