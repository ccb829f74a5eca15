//! Ends a recording, after a crash or on request. State is saved before the process ends.

use super::{Hold, Session};
use crate::core_dump::{self, StoppedThread};
use crate::destination::Destination;
use crate::error::{Error, Result};
use crate::options::Engine;
use crate::ptrace::{self, RawTid, WaitResult};
use crate::thread::{RunState, Thread};
use backtrail_bundle::core::{CoreContents, Registers};
use backtrail_bundle::manifest::{Crash, is_crash};
use backtrail_process::status;
use backtrail_pt::{Pid, Tid};
use std::time::{Duration, Instant};

/// The time limit for threads to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of the core of a process that did not crash.
const MAX_LIVE_CORE: u64 = 1 << 30;

impl Session<'_> {
    /// Handles a signal without a handler that is about to end a process.
    pub(super) fn on_fatal(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let Some(thread) = self.threads.get(&tid) else {
            return Ok(());
        };
        let (pid, info) = (thread.pid, thread.signal);
        self.halt(Hold::Process(pid))?;
        let crash = info.map(|info| Crash {
            pid: Pid(pid as u32),
            tid: Tid(tid as u32),
            signal: info.signal(),
            code: info.code(),
            fault_address: info.address(),
            pc: registers.pc(),
        });
        if let Some(crash) = crash {
            self.reserve.release();
            match self.destination {
                Destination::Crashes(_) => self.begin_crash(crash),
                Destination::Bundle(_) => self.save_end_state(crash),
            }
            self.reserve.fill();
        }
        self.close(pid);
        self.hold = Hold::Nobody;
        self.resume_thread(tid);
        let others: Vec<RawTid> = self.tids(|thread| thread.pid == pid);
        others.into_iter().for_each(|tid| self.resume_thread(tid));
        Ok(())
    }

    /// Saves the state of a halted process that a signal is about to end. A crash takes precedence
    /// over other signals, and the main process over its children.
    fn save_end_state(&mut self, end: Crash) {
        let is_root = end.pid.0 as RawTid == self.root;
        let wanted = match is_crash(end.signal) {
            true => self.crash.is_none() || is_root,
            false => self.crash.is_none() && (self.core.is_none() || is_root),
        };
        if !wanted {
            return;
        }
        if self.settings.engine == Engine::Translate
            && let Some(limit) = status::address_space_limit(end.pid.0 as RawTid)
        {
            self.notes.push(format!(
                "the address space of the program is limited to {} MiB (RLIMIT_AS), which includes memory that the \
                 recorder adds; without the recorder this crash might not happen; `--engine step` adds no memory",
                limit >> 20
            ));
        }
        self.crash = Some(end).filter(|end| is_crash(end.signal));
        let saved = self.save_core(end.pid.0 as RawTid, end.tid.0 as RawTid, u64::MAX);
        self.note_failure("no core was written", saved);
    }

    /// Adds a note about what a failure removes from the recording, which is saved nevertheless.
    fn note_failure(&mut self, loss: &str, result: Result<()>) {
        if let Err(error) = result {
            self.notes.push(format!("{loss}: {}", self.explain(error)));
        }
    }

    /// Adds the descriptor limit to an error that was caused by a lack of descriptors.
    pub(crate) fn explain(&self, error: Error) -> Error {
        error.explained(self.limit.now())
    }

    /// Ends a recording after an error, so that the part recorded so far can be saved.
    pub(crate) fn give_up(&mut self, error: &Error) {
        self.notes.push(format!("recording ended early: {error}"));
        if !self.is_over {
            self.stop_recording();
        }
        // Even if handling fails from here on, the end of each thread is reported.
        let deadline = self.end_deadline();
        loop {
            match ptrace::wait_within(deadline) {
                Ok(WaitResult::Report(tid, stop)) => {
                    if self.on_stop(tid, stop).is_err() {
                        let _ = ptrace::resume(tid, 0);
                    }
                }
                Ok(WaitResult::Interrupted) if Instant::now() < deadline => {}
                Ok(WaitResult::Interrupted) => {
                    self.abandon();
                    break;
                }
                Ok(WaitResult::NoTracees) | Err(_) => break,
            }
        }
        self.end_processes();
    }

    /// Returns the time until which the end of tracees is waited for.
    pub(super) fn end_deadline(&self) -> Instant {
        /// A program that the recorder started is killed. It writes no core, but its memory has to
        /// be freed.
        const OF_KILLED: Duration = Duration::from_secs(30);
        /// An attached program continues, except for threads that never stopped.
        const OF_ATTACHED: Duration = Duration::from_millis(400);
        Instant::now() + if self.owns_program { OF_KILLED } else { OF_ATTACHED }
    }

    /// Gives up threads that do not report. The kernel detaches them when the recorder ends.
    pub(super) fn abandon(&mut self) {
        self.notes
            .push("some threads did not stop before the end of the recording, and are not in it".to_owned());
    }

    /// Stops every thread that `hold` selects, within [`STOP_TIMEOUT`].
    pub(super) fn halt(&mut self, hold: Hold) -> Result<()> {
        self.hold = hold;
        let held = |thread: &Thread| hold.holds(thread.pid);
        for tid in self.tids(|thread| held(thread) && thread.run != RunState::Stopped) {
            let _ = ptrace::interrupt(tid);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self
            .threads
            .values()
            .any(|thread| held(thread) && thread.run != RunState::Stopped)
        {
            if Instant::now() > deadline {
                self.notes
                    .push("a thread did not stop in time; its registers are not in the core".to_owned());
                break;
            }
            match ptrace::wait_within(deadline)? {
                WaitResult::Report(tid, stop) => self.on_stop(tid, stop)?,
                WaitResult::Interrupted => {}
                WaitResult::NoTracees => break,
            }
        }
        Ok(())
    }

    /// Describes the core of a halted process, with the thread `first` at the front.
    pub(super) fn describe_core(&mut self, pid: RawTid, first: RawTid) -> CoreContents {
        let mut tids = self.tids(|thread| thread.pid == pid && thread.run == RunState::Stopped);
        tids.sort_by_key(|tid| (*tid != first, *tid));
        for (tid, thread) in self.threads.iter_mut().filter(|(tid, _)| tids.contains(tid)) {
            thread.name = status::thread_name(pid, *tid);
        }
        let threads: Vec<StoppedThread> = tids
            .into_iter()
            .filter_map(|tid| {
                let signal = self.threads.get(&tid).and_then(|thread| thread.signal);
                Some(StoppedThread {
                    tid,
                    registers: ptrace::registers(tid).ok()?,
                    signal,
                })
            })
            .collect();
        let added = self.added(pid);
        core_dump::describe(pid, &threads, &added)
    }

    /// Writes the core of a halted process into the bundle.
    fn save_core(&mut self, pid: RawTid, first: RawTid, limit: u64) -> Result<()> {
        let contents = self.describe_core(pid, first);
        self.context = core_dump::published_context(pid, &contents);
        let Destination::Bundle(writer) = &self.destination else {
            return Ok(());
        };
        let size = backtrail_process::core_dump::size(&contents);
        if size > limit {
            self.notes.push(format!(
                "no core was written: the process has {} MiB of memory",
                size >> 20
            ));
            return Ok(());
        }
        let path = self.names.take("core")?;
        let written = writer.create_file(&path).map_err(Error::from);
        let written = written.and_then(|mut file| {
            core_dump::write(&mut file, pid, &contents).map_err(Error::system("write the core"))
        });
        if written.is_err() {
            writer.remove_file(&path);
            self.names.release(&path);
        }
        written?;
        self.core = Some(path);
        Ok(())
    }

    /// Ends the packet streams of a halted process.
    fn close(&mut self, pid: RawTid) {
        self.update_image(pid, None);
        for thread in self.threads.values_mut().filter(|thread| thread.pid == pid) {
            let ip = ptrace::registers(thread.tid).ok().map(|registers| registers.pc());
            thread.close(ip, self.encoders.as_ref());
        }
    }

    /// Ends recording before the program has ended. If one step fails, the others are still made.
    pub(super) fn stop_recording(&mut self) {
        self.reserve.release();
        self.frozen.clear();
        let halted = self.halt(Hold::All);
        self.note_failure("some threads were not stopped", halted);
        let settled = self.restore_program_states();
        self.note_failure("some registers are not those of the program", settled);
        let root = self.root;
        if self.crash.is_none() && self.threads.values().any(|thread| thread.pid == root) {
            let saved = self.save_core(root, root, MAX_LIVE_CORE);
            self.note_failure("no core was written", saved);
        }
        let pids: Vec<RawTid> = self.processes.keys().copied().collect();
        pids.iter().for_each(|pid| self.close(*pid));
        if !self.owns_program {
            for tid in self.tids(|thread| thread.run == RunState::Stopped) {
                // A thread that was killed in the meantime needs no signals.
                let _ = self.restore_signals(tid, true);
            }
            pids.iter().for_each(|pid| self.restore_dumpable(*pid));
            self.remove_additions();
        }
        for tid in self.tids(|_| true) {
            let name = self
                .threads
                .get(&tid)
                .and_then(|thread| status::thread_name(thread.pid, tid));
            let signal = self.threads.get(&tid).and_then(|thread| thread.signal);
            self.record(tid, name);
            if !self.owns_program {
                let _ = ptrace::detach(tid, signal.map_or(0, |info| info.signal()));
            }
        }
        // The parents of these threads were not in the cache when they called clone.
        for clone in self.take_early_clones() {
            match self.owns_program {
                true => end_process_of(clone),
                false => drop(ptrace::detach(clone, 0)),
            }
        }
        if self.owns_program {
            let pending = self.pending.as_ref().map(|spawned| spawned.pid);
            // The id of a released process may be another one's by now.
            let pids = pids.into_iter().filter(|pid| !self.released.contains(pid));
            pids.chain(pending).for_each(ptrace::kill);
            self.unrecorded.pids().for_each(ptrace::kill);
        }
        self.is_over = true;
        self.hold = Hold::Nobody;
    }
}

/// Kills the process of a thread.
pub(super) fn end_process_of(tid: RawTid) {
    ptrace::kill(status::thread_group(tid).unwrap_or(tid));
}
