//! Threads and processes that come, become others, and go.

use super::ending::end_process_of;
use super::{Destination, Hold, ROOT_GONE, Session};
use crate::Ending;
use crate::error::{Error, Result};
use crate::options::Engine;
use crate::ptrace::{self, RawTid, Stop};
use crate::recorded::{Process, Recorded};
use crate::stepped::{Stepped, without_trap_flag};
use crate::thread::{Finished, Following, Run, Thread};
use backtrail_bundle::BundlePath;
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_process::status;
use backtrail_pt::{Avma, Pid};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Code of 64-bit programs (`__USER_CS`).
const USER_CS: u64 = 0x33;

/// A thread that has ended, and what is kept of it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) pid: RawTid,
    /// The file of its packets, which names it.
    pub(super) file: BundlePath,
    bytes: usize,
}

impl Session<'_> {
    /// A thread or process that one of ours has started, or a thread just attached to.
    pub(super) fn on_new(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        if self.pending.as_ref().is_some_and(|spawned| spawned.pid == tid) {
            // Not the program yet: its signals are its own.
            let signal = if let Stop::Signal(signal) = stop {
                signal
            } else {
                0
            };
            return ptrace::resume(tid, signal);
        }
        if self.over {
            if self.ours {
                // Of a process that was not known when the others were killed.
                end_process_of(tid);
                return ptrace::resume(tid, 0);
            }
            self.leave_newborn(tid, registers);
            return ptrace::detach(tid, 0);
        }
        if self.settings.engine == Engine::Translate {
            return self.on_new_translated(tid, stop, registers);
        }
        self.on_new_stepped(tid, stop, registers)
    }

    /// A new thread, to be stepped.
    pub(super) fn on_new_stepped(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        let pid = status::thread_group(tid).unwrap_or(tid);
        let known = self.processes.contains_key(&pid);
        if registers.cs != USER_CS || !(known || self.settings.follow) {
            if known && pid == self.root {
                return Err(Error::Not64Bit(Pid(pid as u32)));
            }
            self.let_go(tid);
            return Ok(());
        }
        if !known {
            self.add_process(pid, Process::new(pid, Vec::new(), &self.files));
        }
        if let Some(clean) = without_trap_flag(registers) {
            let _ = ptrace::set_registers(tid, &clean);
        }
        ptrace::unblock_trap(tid);
        let mut stepped = Stepped::found(tid, pid, self.stream(), registers);
        stepped.rseq = !self.ours;
        self.threads
            .insert(tid, Thread::new(tid, pid, Following::Stepped(Box::new(stepped))));
        self.on_stop(tid, stop)
    }

    /// Detaches a stopped thread that is not recorded, or no longer.
    pub(super) fn let_go(&mut self, tid: RawTid) {
        if let Some(free) = &self.free {
            ptrace::set_affinity(tid, free);
        }
        let signal = self.threads.remove(&tid).and_then(|thread| thread.signal);
        let _ = ptrace::detach(tid, signal.map_or(0, |info| info.signal()));
    }

    /// The process has become another program: what it was before is no part of the recording.
    pub(super) fn on_exec(&mut self, tid: RawTid) -> Result<()> {
        let Ok(registers) = ptrace::registers(tid) else {
            return Ok(());
        };
        let first = self.pending.take_if(|spawned| spawned.pid == tid).is_some();
        for before in self.tids(|thread| thread.pid == tid) {
            self.kindred.files.remove(&before);
            self.finish(before);
        }
        if registers.cs != USER_CS {
            self.remove_process(tid);
            if tid == self.root {
                return Err(Error::Not64Bit(Pid(tid as u32)));
            }
            self.notes.push(format!(
                "process {tid} executed a 32-bit program, which is not recorded"
            ));
            self.let_go(tid);
            return Ok(());
        }
        let process = Process {
            replaced: !first,
            ..Process::new(tid, Vec::new(), &self.files)
        };
        self.add_process(tid, process);
        ptrace::unblock_trap(tid);
        let following = match self.settings.engine {
            Engine::Translate => Following::Arriving,
            Engine::Step => {
                let mut stepped = Stepped::in_kernel(tid, tid, self.stream());
                stepped.rseq = !self.ours;
                Following::Stepped(Box::new(stepped))
            }
        };
        self.threads.insert(tid, Thread::new(tid, tid, following));
        self.go_on(tid);
        Ok(())
    }

    /// A thread is about to end.
    pub(super) fn on_exit(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        self.on_unseen_signal(tid, registers)?;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let pid = thread.pid;
        match (&mut thread.following, &self.scribe) {
            (Following::Translated(translated), Some(scribe)) => translated.close_dying(registers, scribe),
            _ => thread.close(Some(registers.pc()), None),
        }
        thread.signal = None;
        let name = status::thread_name(pid, tid);
        if !self
            .threads
            .values()
            .any(|thread| thread.pid == pid && thread.tid != tid)
        {
            self.update_image(pid);
        }
        self.record(tid, name);
        let _ = ptrace::resume(tid, 0);
        Ok(())
    }

    /// A thread ends by a signal that nobody was shown, as seccomp's SIGSYS is: memory is still there. Where there are others it may be
    /// the end of this one alone, or the doing of another.
    fn on_unseen_signal(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let ending = ptrace::event_message(tid).unwrap_or(0);
        let signal = (ending & 0x7f) as i32;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let shown = signal != libc::SIGSYS || thread.is_closed() || self.hold != Hold::Nobody || self.over;
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
        thread.run = Run::Stopped;
        thread.signal = Some(SigInfo::new(signal, 0, Avma(0)));
        let registers = self.settle(tid, registers)?;
        self.on_fatal(tid, &registers)
    }

    /// Of threads that have ended no more is kept than some rings hold: a program that starts threads as
    /// long as it runs is recorded in bounded memory, too.
    fn bound_memory(&mut self, ended: Ended) {
        /// Rings' worth of ended threads.
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

    /// Takes a thread out of those that run, and ends its stream. Others in the same memory, as the parent of a process
    /// that vfork made, get the region that it had there.
    fn finish(&mut self, tid: RawTid) -> Option<(Thread, Finished)> {
        let mut thread = self.threads.remove(&tid)?;
        let place = match &thread.following {
            Following::Translated(translated) => Some((Rc::clone(&translated.space), translated.memory)),
            _ => None,
        };
        let finished = thread.finish(self.scribe.as_ref());
        if let Some((space, memory)) = place
            && !self.is_used(&space, memory)
        {
            space.borrow_mut().forget(memory);
        }
        Some((thread, finished?))
    }

    /// Takes a thread whose stream has ended out of those that run.
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
        let file = match self.kindred.files.remove(&tid) {
            Some(file) => file,
            None => match self.names.take(&format!("traces/{tid}.pt")) {
                Ok(file) => file,
                Err(_) => return,
            },
        };
        let ended = Ended {
            pid: thread.pid,
            file: file.clone(),
            bytes: finished.packets.len() as usize,
        };
        process.recorded.push(Recorded {
            tid,
            name: name.or(thread.name),
            file,
            packets: finished.packets,
            dropped: finished.dropped,
            gaps: finished.gaps,
            golden: finished.golden,
            boundaries: finished.boundaries,
        });
        self.bound_memory(ended);
    }

    /// A thread, or with its leader a process, is gone.
    pub(super) fn on_gone(&mut self, tid: RawTid, stop: Stop) {
        self.record(tid, None);
        self.copy_modules(tid);
        // An end that we made is not the program's own.
        if tid == self.root && self.pending.is_none() && !self.over {
            self.ending = match stop {
                Stop::Exited(status) => Ending::Exited(status),
                Stop::Killed(signal) => Ending::Killed(signal),
                _ => Ending::Running,
            };
            self.shared.root.store(ROOT_GONE, Ordering::Release);
        }
        if matches!(self.destination, Destination::Crashes(_)) && !self.over {
            self.remove_process(tid);
        }
    }
}
