//! Handles stops of threads in the code cache.

use super::{Hold, Session};
use crate::Engine;
use crate::error::Result;
use crate::ptrace::{self, RawTid, Stop};
use crate::signal_state::{HANDLER_ENTRY, SI_KERNEL, SignalState, has_forced_pending, is_sent};
use crate::thread::{FollowMode, RunState, Thread};
use crate::translate::{EncoderPool, MemoryId, SharedAddressSpace, ThreadState, Translated, TrapAction};
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_process::status::{self, DefaultAction, Disposition};
use backtrail_pt::Avma;
use std::collections::HashMap;
use std::rc::Rc;

impl Session<'_> {
    /// Handles a stop of a thread in the cache, or of one that executes a system call or
    /// instruction outside it.
    pub(super) fn on_translated(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        match stop {
            Stop::Signal(signal) => return self.on_translated_signal(tid, signal, registers),
            Stop::Event(libc::PTRACE_EVENT_EXIT) => {
                return self.on_exit(tid, registers);
            }
            Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) => {
                self.on_clone(tid)?;
                // The thread is still inside the system call, so its state cannot be restored yet.
                // After vfork it stays there.
                let ends_soon = stop != Stop::Event(libc::PTRACE_EVENT_VFORK);
                let is_our_call = translated_thread(&mut self.threads, &self.encoders, tid)
                    .is_some_and(|thread| matches!(thread.translated.state, ThreadState::InSyscall { .. }));
                if ends_soon && is_our_call && self.is_held(tid) {
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        thread.run = RunState::Running;
                    }
                    return ptrace::step(tid, 0);
                }
            }
            Stop::Group(_) if self.hold == Hold::Nobody => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.run = RunState::Listening;
                }
                let _ = ptrace::listen(tid);
                return Ok(());
            }
            Stop::Interrupted | Stop::Group(_) if self.is_held(tid) => {
                // A pending trap or fault can only be interpreted where it happened, so let it be
                // delivered first.
                if has_forced_pending(tid) {
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        thread.run = RunState::Running;
                    }
                    return ptrace::resume(tid, 0);
                }
                self.restore_program_state(tid, registers)?;
            }
            _ => {}
        }
        self.resume_thread(tid);
        Ok(())
    }

    fn on_translated_signal(&mut self, tid: RawTid, signal: i32, registers: &Registers) -> Result<()> {
        let Ok(info) = ptrace::siginfo(tid) else {
            return Ok(());
        };
        let info = match translated_thread(&mut self.threads, &self.encoders, tid) {
            Some(TranslatedThread { translated, .. }) => translated.original_info(info),
            None => info,
        };
        if self.note_forced(tid, &info) {
            self.note_wait(tid);
            let cause = match translated_thread(&mut self.threads, &self.encoders, tid) {
                Some(TranslatedThread { translated, .. }) if signal == libc::SIGSEGV && is_sent(&info) => {
                    translated.fault_info(&info, registers)
                }
                _ => info,
            };
            if self.handle_recorder_stop(tid, signal, &cause, registers)? {
                return Ok(());
            }
            self.note_own(tid, signal);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        thread.signal = Some(info);
        if !thread.is_closed() {
            let stopped = registers.pc();
            let registers = self.restore_program_state(tid, registers)?;
            if self.restore_lost_action(tid, &info)? {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.signal = None;
                }
                self.resume_thread(tid);
                return Ok(());
            }
            self.move_fault(tid, &info, stopped, registers.pc());
            let fatal = status::default_action(signal) == DefaultAction::Terminate
                && status::is_default_signal(tid, signal);
            if fatal && self.hold == Hold::Nobody {
                self.on_fatal(tid, &registers)?;
            }
        }
        self.resume_thread(tid);
        Ok(())
    }

    /// Moves the fault address from the cache to the program's instruction, for signals that report
    /// it in `si_addr` or `si_call_addr` (sigaction(2)).
    fn move_fault(&mut self, tid: RawTid, info: &SigInfo, from: Avma, to: Avma) {
        const OF_INSTRUCTIONS: [i32; 3] = [libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
        let is_fault = OF_INSTRUCTIONS.contains(&info.signal()) && info.address() == Some(from);
        if from == to || !(is_fault || info.call_address() == Some(from)) {
            return;
        }
        let info = info.with_address(to);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.signal = Some(info);
        }
        // This fails only if the thread was killed.
        let _ = ptrace::set_siginfo(tid, &info);
    }

    /// Handles stops that the recorder caused, and returns whether this was one.
    fn handle_recorder_stop(
        &mut self,
        tid: RawTid,
        signal: i32,
        info: &SigInfo,
        registers: &Registers,
    ) -> Result<bool> {
        let shares_cache = self.shares_cache(tid);
        let Some(TranslatedThread {
            translated, encoders, ..
        }) = translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(false);
        };
        let is_breakpoint = signal == libc::SIGTRAP && (info.code() == SI_KERNEL || is_sent(info));
        if is_breakpoint
            && let Some(next) = translated.target_without_room(registers)
            && (shares_cache || translated.is_full(next))
        {
            // Restore the state at the trap itself, not after it.
            let at = Registers {
                rip: registers.rip - 1,
                ..*registers
            };
            translated.restore_program_state(&at, encoders)?;
            if !shares_cache {
                self.flush_cache(tid)?;
            }
            self.resume_thread(tid);
            return Ok(true);
        }
        if shares_cache && signal == libc::SIGSEGV && translated.is_write(info) {
            let registers = translated.restore_program_state(registers, encoders)?;
            self.unshare(tid, &registers)?;
            return self.handle_recorder_stop(tid, signal, info, &registers);
        }
        let action = match signal {
            libc::SIGSEGV => {
                let address = info.address().map(|address| address.0);
                if translated.is_full_of_values(address) {
                    translated.restore_program_state(registers, encoders)?;
                    Some(TrapAction::InProgramState)
                } else if translated.on_fault(address, registers, encoders)? {
                    if translated.ends_values_of_chunk() {
                        let registers = ptrace::registers(tid)?;
                        translated.restore_program_state(&registers, encoders)?;
                        Some(TrapAction::InProgramState)
                    } else {
                        Some(TrapAction::Continue)
                    }
                } else {
                    match translated.on_masked_fault(registers, encoders)? {
                        None => translated.on_write(info, registers, encoders)?,
                        action => action,
                    }
                }
            }
            libc::SIGBUS if !is_sent(info) => translated.on_masked_fault(registers, encoders)?,
            libc::SIGTRAP if is_breakpoint => translated.on_trap(registers, encoders)?,
            _ => None,
        };
        if let Some(action) = action {
            self.resume_after_trap(tid, action)?;
            return Ok(true);
        }
        if signal != libc::SIGTRAP {
            return Ok(false);
        }
        let Some(TranslatedThread {
            translated, encoders, ..
        }) = translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(false);
        };
        if let Some((number, before, now)) = translated.end_syscall(registers)? {
            self.after_syscall(tid, number, &before, &now)?;
            self.resume_thread(tid);
            return Ok(true);
        }
        if info.code() != HANDLER_ENTRY && translated.on_breakpoint(registers, encoders) {
            return Ok(false);
        }
        if translated.on_stepped(registers, info.code() == HANDLER_ENTRY, encoders) {
            if info.code() == HANDLER_ENTRY {
                self.note_delivered(tid);
            } else if translated.take_own_trap() {
                return Ok(false);
            }
            self.resume_thread(tid);
            return Ok(true);
        }
        let is_of_step = (libc::TRAP_BRKPT..=libc::TRAP_TRACE).contains(&info.code());
        if !is_of_step || translated.is_closed() {
            return Ok(false);
        }
        // The trap of a step that another signal has ended first.
        let action = match translated.state {
            ThreadState::InCache => TrapAction::Continue,
            ThreadState::InSyscall { .. } | ThreadState::Native { .. } => TrapAction::Step,
            ThreadState::ProgramState | ThreadState::Closed => TrapAction::InProgramState,
        };
        self.resume_after_trap(tid, action)?;
        Ok(true)
    }

    /// Resumes a thread after a trap that the recorder caused.
    pub(super) fn resume_after_trap(&mut self, tid: RawTid, action: TrapAction) -> Result<()> {
        if action == TrapAction::InProgramState {
            self.resume_thread(tid);
            return Ok(());
        }
        if action == TrapAction::AtCall {
            return self.on_recorder_call(tid);
        }
        if self.is_held(tid) {
            let registers = ptrace::registers(tid)?;
            self.restore_program_state(tid, &registers)?;
            return Ok(());
        }
        self.restore_signals(tid, false)?;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        thread.run = RunState::Running;
        if let FollowMode::Translated(translated) = &mut thread.mode {
            translated.resend_held();
        }
        // A failure means that the thread was killed. Its end is reported later.
        let _ = match action {
            TrapAction::Step => ptrace::step(tid, 0),
            _ => ptrace::resume(tid, 0),
        };
        Ok(())
    }

    /// Restores the program's registers in a stopped thread.
    pub(super) fn restore_program_state(&mut self, tid: RawTid, registers: &Registers) -> Result<Registers> {
        match translated_thread(&mut self.threads, &self.encoders, tid) {
            Some(TranslatedThread {
                translated, encoders, ..
            }) => translated.restore_program_state(registers, encoders),
            None => Ok(*registers),
        }
    }

    /// Restores the program's registers in all stopped threads. A thread may have stopped in a
    /// clone call that the recorder makes for it.
    pub(super) fn restore_program_states(&mut self) -> Result<()> {
        for tid in self.tids(|thread| thread.run == RunState::Stopped) {
            if let Ok(registers) = ptrace::registers(tid) {
                self.restore_program_state(tid, &registers)?;
            }
        }
        Ok(())
    }

    /// Resumes a translated thread.
    pub(super) fn resume_translated(&mut self, tid: RawTid) {
        let Err(error) = self.try_resume_translated(tid) else {
            return;
        };
        // If the thread was killed, its end is reported later. Otherwise the thread continues
        // untraced.
        let Ok(registers) = ptrace::registers(tid) else {
            return;
        };
        self.notes
            .push(format!("recording of thread {tid} ended early: {error}"));
        if let Some(pid) = self.threads.get(&tid).map(|thread| thread.pid) {
            self.forget_shared_memory(pid);
        }
        if let Some(TranslatedThread {
            run,
            translated,
            encoders,
            ..
        }) = translated_thread(&mut self.threads, &self.encoders, tid)
        {
            *run = RunState::Running;
            translated.close(registers.rip, encoders);
            translated.resend_held();
        }
        let _ = ptrace::resume(tid, 0);
    }

    fn try_resume_translated(&mut self, tid: RawTid) -> Result<()> {
        self.unshare_if_needed(tid)?;
        self.restore_signals(tid, false)?;
        let Some(TranslatedThread {
            run,
            signal,
            signals,
            translated,
            encoders,
            ..
        }) = translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(());
        };
        *run = RunState::Running;
        translated.resend_held();
        match translated.state {
            ThreadState::InCache => ptrace::resume(tid, 0),
            ThreadState::InSyscall { .. } | ThreadState::Native { .. } => ptrace::step(tid, 0),
            ThreadState::Closed => ptrace::resume(tid, signal.take().map_or(0, |info| info.signal())),
            ThreadState::ProgramState => {
                let signal = signal.take().map_or(0, |info| info.signal());
                let registers = ptrace::registers(tid)?;
                if signal != 0 && status::disposition(tid, signal) == Disposition::Handled {
                    translated.deliver(&registers, encoders);
                    signals.delivered = signal;
                    return ptrace::step(tid, signal);
                }
                let entered = translated.enter(&registers, encoders);
                // Entering the cache may have queued more signals.
                translated.resend_held();
                match entered {
                    Ok(TrapAction::Continue) => ptrace::resume(tid, signal),
                    Ok(TrapAction::Step) => ptrace::step(tid, signal),
                    Ok(TrapAction::InProgramState) => self.try_resume_translated(tid),
                    Ok(TrapAction::AtCall) => self.on_recorder_call(tid),
                    Err(error) => {
                        ptrace::set_registers(tid, &registers)?;
                        Err(error)
                    }
                }
            }
        }
    }

    /// Gives a process its own cache if it shares one and needs another slab, or has changed its
    /// code. The thread must have the program's registers.
    fn unshare_if_needed(&mut self, tid: RawTid) -> Result<()> {
        let Some(FollowMode::Translated(translated)) = self.threads.get(&tid).map(|thread| &thread.mode)
        else {
            return Ok(());
        };
        if !matches!(translated.state, ThreadState::ProgramState) || !self.shares_cache(tid) {
            return Ok(());
        }
        let registers = ptrace::registers(tid)?;
        if translated.needs_slab(registers.rip) {
            self.unshare(tid, &registers)?;
        }
        Ok(())
    }

    /// Flushes the cache of a process, if all its threads can be stopped outside the cache.
    /// Otherwise another slab is added later.
    fn flush_cache(&mut self, tid: RawTid) -> Result<()> {
        let Some((pid, space)) = self.space(tid) else {
            return Ok(());
        };
        if self.hold != Hold::Nobody {
            return Ok(());
        }
        self.halt(Hold::Process(pid))?;
        let threads = self.tids(|thread| match &thread.mode {
            FollowMode::Translated(other) => Rc::ptr_eq(&other.space, &space),
            _ => false,
        });
        let out = threads
            .iter()
            .filter_map(|tid| self.threads.get(tid))
            .all(|thread| match &thread.mode {
                FollowMode::Translated(other) => thread.run == RunState::Stopped && other.is_outside_cache(),
                _ => true,
            });
        if out {
            space.borrow_mut().flush();
        }
        self.hold = Hold::Nobody;
        let others = threads.into_iter().filter(|other| *other != tid);
        others.for_each(|other| self.resume_thread(other));
        Ok(())
    }

    /// Returns the process and the address space of a translated thread.
    pub(super) fn space(&self, tid: RawTid) -> Option<(RawTid, SharedAddressSpace)> {
        let thread = self.threads.get(&tid)?;
        match &thread.mode {
            FollowMode::Translated(translated) => Some((thread.pid, Rc::clone(&translated.space))),
            _ => None,
        }
    }

    /// Returns whether any thread runs in this memory.
    pub(super) fn is_used(&self, space: &SharedAddressSpace, memory: MemoryId) -> bool {
        self.threads.values().any(|thread| match &thread.mode {
            FollowMode::Translated(other) => Rc::ptr_eq(&other.space, space) && other.memory == memory,
            _ => false,
        })
    }

    /// Returns whether a process with other memory uses the same cache.
    pub(super) fn shares_cache(&self, tid: RawTid) -> bool {
        let Some(FollowMode::Translated(one)) = self.threads.get(&tid).map(|thread| &thread.mode) else {
            return false;
        };
        self.threads.values().any(|thread| match &thread.mode {
            FollowMode::Translated(other) => {
                Rc::ptr_eq(&one.space, &other.space) && one.memory != other.memory
            }
            _ => false,
        })
    }

    pub(super) fn unshare(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let Some(FollowMode::Translated(one)) = self.threads.get(&tid).map(|thread| &thread.mode) else {
            return Ok(());
        };
        let memory = one.memory;
        let same =
            |thread: &Thread| matches!(&thread.mode, FollowMode::Translated(other) if other.memory == memory);
        let tids = self.tids(same);
        let regions: Vec<u64> = tids
            .iter()
            .filter_map(|tid| match &self.threads.get(tid)?.mode {
                FollowMode::Translated(other) => Some(other.region()),
                _ => None,
            })
            .collect();
        let Some(TranslatedThread { translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(());
        };
        let space = translated.unshare(registers, &regions)?;
        for tid in tids {
            if let Some(TranslatedThread { translated, .. }) =
                translated_thread(&mut self.threads, &self.encoders, tid)
            {
                let shared = std::mem::replace(&mut translated.space, Rc::clone(&space));
                shared.borrow_mut().forget(memory);
            }
        }
        Ok(())
    }

    /// Adds a note if code was stepped because no address in its reach was free.
    fn note_crowded(&mut self, pid: RawTid) {
        let is_crowded = self.threads.values().any(|thread| match &thread.mode {
            FollowMode::Translated(translated) if thread.pid == pid => {
                translated.space.borrow_mut().take_was_crowded()
            }
            _ => false,
        });
        if is_crowded {
            self.notes.push(format!(
                "process {pid} has no free addresses near some of its code; this code was single-stepped, which is slow"
            ));
        }
    }

    /// Updates the code image of a process. `mapped` is the address of a new mapping.
    pub(super) fn update_image(&mut self, pid: RawTid, mapped: Option<u64>) {
        self.note_crowded(pid);
        let added = self.added(pid);
        let space = self.threads.values().find_map(|thread| match &thread.mode {
            FollowMode::Translated(translated) if thread.pid == pid => Some(Rc::clone(&translated.space)),
            _ => None,
        });
        if let Some(process) = self.processes.get_mut(&pid) {
            process.image.added = added;
            match space {
                Some(space) => {
                    let mut space = space.borrow_mut();
                    process.code_version = space.version();
                    let replaced = process.image.update(pid, process.code_version, mapped);
                    replaced.into_iter().for_each(|range| space.mark_changed(range));
                    process.fragments = space.fragments();
                }
                None if self.settings.engine == Engine::Step => process.update_stepped(pid, mapped),
                None => drop(process.image.update(pid, process.code_version, mapped)),
            }
        }
        self.limit_open_files();
    }

    /// Returns the memory that the recorder added to a process, as start and size.
    pub(super) fn added(&self, pid: RawTid) -> Vec<(u64, u64)> {
        self.threads
            .values()
            .filter(|thread| thread.pid == pid)
            .find_map(|thread| match &thread.mode {
                FollowMode::Translated(translated) => Some(translated.space.borrow().areas()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Removes added memory from processes that are detached. All their threads must have the
    /// program's registers.
    pub(super) fn remove_additions(&mut self) {
        let mut cleared = Vec::new();
        for tid in self.tids(|_| true) {
            let Some(TranslatedThread { translated, .. }) =
                translated_thread(&mut self.threads, &self.encoders, tid)
            else {
                continue;
            };
            if !cleared.contains(&translated.memory) {
                cleared.push(translated.memory);
                if let Err(error) = translated.remove_additions() {
                    self.notes.push(format!(
                        "cannot remove the memory that the recorder added to the process of thread {tid}: {error}"
                    ));
                }
            }
        }
    }
}

/// A translated thread, with the encoders of its packets.
pub(super) struct TranslatedThread<'a> {
    pub(super) pid: RawTid,
    run: &'a mut RunState,
    signal: &'a mut Option<SigInfo>,
    signals: &'a mut SignalState,
    pub(super) translated: &'a mut Translated,
    pub(super) encoders: &'a EncoderPool,
}

pub(super) fn translated_thread<'a>(
    threads: &'a mut HashMap<RawTid, Thread>,
    encoders: &'a Option<EncoderPool>,
    tid: RawTid,
) -> Option<TranslatedThread<'a>> {
    let Thread {
        pid,
        run,
        signal,
        signals,
        mode,
        ..
    } = threads.get_mut(&tid)?;
    let FollowMode::Translated(translated) = mode else {
        return None;
    };
    Some(TranslatedThread {
        pid: *pid,
        run,
        signal,
        signals,
        translated,
        encoders: encoders.as_ref()?,
    })
}
