//! Starts, exec calls and ends of threads and processes.

use super::ending::end_process_of;
use super::state::EndedThread;
use super::{Hold, Session};
use crate::Ending;
use crate::code;
use crate::destination::Destination;
use crate::error::{Error, Result};
use crate::options::Engine;
use crate::ptrace::{self, RawTid, Stop};
use crate::recorded::{FinishedStream, RecordedProcess, RecordedThread};
use crate::stepped::{Stepped, without_trap_flag};
use crate::thread::{FollowMode, RunState, Thread};
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_process::status;
use backtrail_pt::{Avma, Pid};
use std::rc::Rc;

/// The code segment of 64-bit programs (`__USER_CS`).
pub(super) const USER_CS: u64 = 0x33;

impl Session<'_> {
    /// Handles the first stop of a new or attached thread or process.
    pub(super) fn on_new(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        if self.pending.as_ref().is_some_and(|spawned| spawned.pid == tid) {
            // Before exec the process is not the program yet: pass its signals on.
            let signal = if let Stop::Signal(signal) = stop {
                signal
            } else {
                0
            };
            return ptrace::resume(tid, signal);
        }
        if self.is_over {
            if self.owns_program {
                // The process was not known when the others were killed.
                end_process_of(tid);
                return ptrace::resume(tid, 0);
            }
            self.restore_child_registers(tid, registers);
            return ptrace::detach(tid, 0);
        }
        if self.is_new_unrecorded(tid) {
            return self.on_unrecorded(tid, stop);
        }
        if self.settings.engine == Engine::Translate {
            return self.on_new_translated(tid, stop, registers);
        }
        self.on_new_stepped(tid, stop, registers)
    }

    /// Starts single-stepping a new thread.
    pub(super) fn on_new_stepped(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        let pid = status::thread_group(tid).unwrap_or(tid);
        let known = self.processes.contains_key(&pid);
        if registers.cs != USER_CS || !(known || self.settings.follow) {
            if known && pid == self.root {
                return Err(Error::Not64Bit(Pid(pid as u32)));
            }
            self.detach_thread(tid);
            return Ok(());
        }
        if !known {
            self.add_process(pid, RecordedProcess::new(pid, Vec::new(), &self.files));
        }
        if let Some(clean) = without_trap_flag(registers) {
            let _ = ptrace::set_registers(tid, &clean);
        }
        let mut stepped = Stepped::found(tid, pid, self.stream(), registers);
        stepped.values = self.value_recorder();
        stepped.rseq = !self.owns_program;
        stepped.keeps_dumpable = self.settings.emulates_dumpable;
        self.threads
            .insert(tid, Thread::new(tid, pid, FollowMode::Stepped(Box::new(stepped))));
        if !self.owns_program
            && stop == Stop::Interrupted
            && let Err(error) = self.read_actions(tid)
        {
            self.note_once(format!(
                "the signal handlers of process {pid} are unknown: {error}"
            ));
        }
        self.on_stop(tid, stop)
    }

    /// Detaches a stopped thread that is not recorded, or no longer recorded.
    pub(super) fn detach_thread(&mut self, tid: RawTid) {
        if let Some(free) = &self.free {
            ptrace::set_affinity(tid, free);
        }
        let signal = self.threads.remove(&tid).and_then(|thread| thread.signal);
        let _ = ptrace::detach(tid, signal.map_or(0, |info| info.signal()));
    }

    /// Handles exec: the history of the old program is discarded.
    pub(super) fn on_exec(&mut self, tid: RawTid) -> Result<()> {
        let Ok(registers) = ptrace::registers(tid) else {
            return Ok(());
        };
        let started = self.pending.take_if(|spawned| spawned.pid == tid).is_some();
        let first = started || self.is_unrecorded(tid);
        for before in self.tids(|thread| thread.pid == tid) {
            self.pending_clones.files.remove(&before);
            self.finish(before);
        }
        if self.executes_unrecorded(tid) {
            return ptrace::resume(tid, 0);
        }
        if registers.cs != USER_CS {
            self.remove_process(tid);
            if tid == self.root {
                return Err(Error::Not64Bit(Pid(tid as u32)));
            }
            self.notes.push(format!(
                "process {tid} executed a 32-bit program, which is not recorded"
            ));
            self.detach_thread(tid);
            return Ok(());
        }
        if code::read_code(tid, registers.rip, &mut [0]) == 0 {
            self.remove_process(tid);
            let error = Error::Unreadable(Pid(tid as u32));
            if tid == self.root {
                return Err(error);
            }
            self.notes.push(error.to_string());
            self.detach_thread(tid);
            return Ok(());
        }
        let process = RecordedProcess {
            replaced: !first,
            shared_memory: self.without_shared_memory(),
            ..RecordedProcess::new(tid, Vec::new(), &self.files)
        };
        self.add_process(tid, process);
        let mode = match self.settings.engine {
            Engine::Translate => FollowMode::AwaitingUserCode,
            Engine::Step => {
                let mut stepped = Stepped::in_kernel(tid, tid, self.stream());
                stepped.values = self.value_recorder();
                stepped.rseq = !self.owns_program;
                stepped.keeps_dumpable = self.settings.emulates_dumpable;
                FollowMode::Stepped(Box::new(stepped))
            }
        };
        self.threads.insert(tid, Thread::new(tid, tid, mode));
        self.resume_thread(tid);
        Ok(())
    }

    /// Handles a thread that is about to end.
    pub(super) fn on_exit(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        self.on_unseen_signal(tid, registers)?;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let pid = thread.pid;
        match (&mut thread.mode, &self.encoders) {
            (FollowMode::Translated(translated), Some(encoders)) => {
                translated.close_at_exit(registers, encoders)
            }
            _ => thread.close(Some(registers.pc()), None),
        }
        thread.signal = None;
        let name = status::thread_name(pid, tid);
        if !self
            .threads
            .values()
            .any(|thread| thread.pid == pid && thread.tid != tid)
        {
            self.update_image(pid, None);
        }
        self.record(tid, name);
        let _ = ptrace::resume(tid, 0);
        Ok(())
    }

    /// Handles a fatal signal without a signal-delivery-stop, such as seccomp's SIGSYS, while
    /// memory still exists. With several threads, the signal may end only this thread or come from
    /// another one, so nothing is saved.
    fn on_unseen_signal(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let ending = ptrace::event_message(tid).unwrap_or(0);
        let signal = (ending & 0x7f) as i32;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let shown = signal != libc::SIGSYS || thread.is_closed() || self.hold != Hold::Nobody || self.is_over;
        if shown || !matches!(self.destination, Destination::Bundle(_)) {
            return Ok(());
        }
        let had_others = self
            .processes
            .get(&thread.pid)
            .is_none_or(|process| !process.recorded.is_empty());
        if had_others || status::threads(thread.pid).len() > 1 {
            return Ok(());
        }
        thread.run = RunState::Stopped;
        thread.signal = Some(SigInfo::new(signal, 0, Avma(0)));
        let registers = self.restore_program_state(tid, registers)?;
        self.on_fatal(tid, &registers)
    }

    /// Drops packets of the oldest ended threads, so that a program that keeps starting threads is
    /// recorded in bounded memory.
    fn bound_memory(&mut self, ended: EndedThread) {
        /// The size limit of ended threads, in rings.
        const RINGS: usize = 8;
        let Some(ring) = self.settings.ring else { return };
        self.ended.push_back(ended);
        let mut kept: usize = self.ended.iter().map(|ended| ended.bytes).sum();
        while kept > ring.saturating_mul(RINGS) && self.ended.len() > 1 {
            let Some(oldest) = self.ended.pop_front() else {
                return;
            };
            kept -= oldest.bytes;
            self.left_out += 1;
            if let Destination::Crashes(_) = self.destination {
                self.names.release(&oldest.file);
            }
            if let Some(process) = self.processes.get_mut(&oldest.pid) {
                process.left_out += 1;
                process.recorded.retain(|recorded| recorded.file != oldest.file);
                let alive = self.threads.values().any(|thread| thread.pid == oldest.pid);
                if process.recorded.is_empty() && !alive && oldest.pid != self.root {
                    self.processes.remove(&oldest.pid);
                }
            }
        }
    }

    /// Removes a thread and ends its stream. Its region is free for other threads in the same
    /// memory, such as the parent after vfork.
    fn finish(&mut self, tid: RawTid) -> Option<(Thread, FinishedStream)> {
        let mut thread = self.threads.remove(&tid)?;
        let place = match &thread.mode {
            FollowMode::Translated(translated) => Some((Rc::clone(&translated.space), translated.memory)),
            _ => None,
        };
        let finished = thread.finish(self.encoders.as_ref());
        if let Some((space, memory)) = place
            && !self.is_used(&space, memory)
        {
            space.borrow_mut().forget(memory);
        }
        Some((thread, finished?))
    }

    /// Stores the packets of a thread whose stream has ended.
    pub(super) fn record(&mut self, tid: RawTid, name: Option<String>) {
        let Some((thread, finished)) = self.finish(tid) else {
            return;
        };
        self.instructions += finished.instructions.unwrap_or(0);
        self.gaps += finished.gaps;
        if let Some(failure) = finished.failure {
            self.notes.push(format!(
                "the trace of thread {tid} ends early: its file could not be written ({failure})"
            ));
        }
        if finished.instructions.is_some() {
            self.bytes += finished.bytes;
        }
        let Some(process) = self.processes.get_mut(&thread.pid) else {
            return;
        };
        let file = match self.pending_clones.files.remove(&tid) {
            Some(file) => file,
            None => match self.names.take(&format!("traces/{tid}.pt")) {
                Ok(file) => file,
                Err(_) => return,
            },
        };
        let ended = EndedThread {
            pid: thread.pid,
            file: file.clone(),
            bytes: finished.packets.len() as usize,
        };
        process.recorded.push(RecordedThread {
            tid,
            name: name.or(thread.name),
            file,
            packets: finished.packets,
            dropped: finished.dropped,
            gaps: finished.gaps,
            golden: finished.golden,
            boundaries: finished.boundaries,
            values: finished.values,
        });
        self.bound_memory(ended);
    }

    /// Handles the end of a thread, or of a process if the thread is its leader.
    pub(super) fn on_thread_end(&mut self, tid: RawTid, stop: Stop) {
        self.frozen.remove(&tid);
        self.thaw_all(tid);
        self.record(tid, None);
        self.copy_modules(tid);
        let ending = match stop {
            Stop::Exited(status) => Ending::Exited(status),
            Stop::Killed(signal) => Ending::Killed(signal),
            _ => Ending::Running,
        };
        // An end that the recorder caused does not count as the program's ending.
        if tid == self.root && self.pending.is_none() && !self.is_over {
            self.ending = ending;
            self.shared.program.set_ended();
        }
        if matches!(self.destination, Destination::Crashes(_)) && !self.is_over {
            self.end_process(tid, ending);
        }
        if self.unrecorded.ends_with(tid) {
            self.counts.unrecorded += 1;
        }
    }
}
