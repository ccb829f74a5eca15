//! The end: a crash, whose state is saved before the process dies, or the wish to stop recording.

use super::{Destination, Hold, Session};
use crate::core_dump::{self, StoppedThread};
use crate::error::{Error, Result};
use crate::options::Engine;
use crate::ptrace::{self, RawTid, Wait};
use crate::thread::{Run, Thread};
use backtrail_bundle::core::{CoreContents, Registers};
use backtrail_bundle::manifest::{Crash, is_crash};
use backtrail_process::status;
use backtrail_pt::{Pid, Tid};
use std::time::{Duration, Instant};

/// How long threads may take to stop when asked.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// A core of a process that did not crash is not written when larger.
const MAX_LIVE_CORE: u64 = 1 << 30;

impl Session<'_> {
    /// A signal without handler is about to end a process.
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
                Destination::Bundle(_) => self.keep_end(crash),
            }
            self.reserve.fill();
        }
        self.close(pid);
        self.hold = Hold::Nobody;
        self.go_on(tid);
        let others: Vec<RawTid> = self.tids(|thread| thread.pid == pid);
        others.into_iter().for_each(|tid| self.go_on(tid));
        Ok(())
    }

    /// Keeps the state of a halted process that a signal is about to end: of the one that crashes, and as long as none does, of one
    /// that is ended. The recorded program itself is preferred to its children.
    fn keep_end(&mut self, end: Crash) {
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
                "the program may have {} MiB of address space (RLIMIT_AS), and what the recorder adds counts as its own: \
                 without it there may be no such crash; `--engine step` adds nothing",
                limit >> 20
            ));
        }
        self.crash = Some(end).filter(|end| is_crash(end.signal));
        let saved = self.save_core(end.pid.0 as RawTid, end.tid.0 as RawTid, u64::MAX);
        self.note_failure("there is no core", saved);
    }

    /// Notes what a failure takes away from the recording, which is saved all the same.
    fn note_failure(&mut self, loss: &str, result: Result<()>) {
        if let Err(error) = result {
            self.notes.push(format!("{loss}: {}", self.explain(error)));
        }
    }

    /// Says of an error for want of descriptors how many the recorder may have.
    pub(crate) fn explain(&self, error: Error) -> Error {
        error.explained(self.limit.now())
    }

    /// Ends a recording that cannot go on; what was recorded until now can be saved.
    pub(crate) fn give_up(&mut self, error: &Error) {
        self.notes.push(format!("recording ended early: {error}"));
        if !self.over {
            self.stop_recording();
        }
        // Whatever fails from now on, the end of each thread is reported.
        loop {
            match ptrace::wait_any() {
                Ok(Wait::Report(tid, stop)) => {
                    if self.on_stop(tid, stop).is_err() {
                        let _ = ptrace::resume(tid, 0);
                    }
                }
                Ok(Wait::Interrupted) => {}
                Ok(Wait::Nobody) | Err(_) => break,
            }
        }
        self.end_processes();
    }

    /// Stops every thread that `hold` names, within [`STOP_TIMEOUT`].
    pub(super) fn halt(&mut self, hold: Hold) -> Result<()> {
        self.hold = hold;
        let held = |thread: &Thread| hold.holds(thread.pid);
        for tid in self.tids(|thread| held(thread) && thread.run != Run::Stopped) {
            let _ = ptrace::interrupt(tid);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self
            .threads
            .values()
            .any(|thread| held(thread) && thread.run != Run::Stopped)
        {
            if Instant::now() > deadline {
                self.notes
                    .push("a thread did not stop in time; its registers are not in the core".to_owned());
                break;
            }
            match ptrace::wait_within(deadline)? {
                Wait::Report(tid, stop) => self.on_stop(tid, stop)?,
                Wait::Interrupted => {}
                Wait::Nobody => break,
            }
        }
        Ok(())
    }

    /// What the core of a halted process is to hold, `first` being the thread it is about.
    pub(super) fn describe_core(&mut self, pid: RawTid, first: RawTid) -> CoreContents {
        let mut tids = self.tids(|thread| thread.pid == pid && thread.run == Run::Stopped);
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

    /// Writes the core of a halted process into the one bundle.
    fn save_core(&mut self, pid: RawTid, first: RawTid, limit: u64) -> Result<()> {
        let contents = self.describe_core(pid, first);
        let Destination::Bundle(writer) = &self.destination else {
            return Ok(());
        };
        let size = backtrail_process::core_dump::size(&contents);
        if size > limit {
            self.notes.push(format!(
                "the process has {} MiB of memory: no core was written",
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

    /// Ends the streams of a halted process.
    fn close(&mut self, pid: RawTid) {
        self.update_image(pid);
        for thread in self.threads.values_mut().filter(|thread| thread.pid == pid) {
            let ip = ptrace::registers(thread.tid).ok().map(|registers| registers.pc());
            thread.close(ip, self.scribe.as_ref());
        }
    }

    /// Ends recording before the program has ended. A step that fails does not keep the others from being made.
    pub(super) fn stop_recording(&mut self) {
        self.reserve.release();
        let halted = self.halt(Hold::All);
        self.note_failure("some threads were not stopped", halted);
        let settled = self.settle_all();
        self.note_failure("some registers are not those of the program", settled);
        let root = self.root;
        if self.crash.is_none() && self.threads.values().any(|thread| thread.pid == root) {
            let saved = self.save_core(root, root, MAX_LIVE_CORE);
            self.note_failure("there is no core", saved);
        }
        let pids: Vec<RawTid> = self.processes.keys().copied().collect();
        pids.iter().for_each(|pid| self.close(*pid));
        if !self.ours {
            self.clear();
        }
        for tid in self.tids(|_| true) {
            let name = self
                .threads
                .get(&tid)
                .and_then(|thread| status::thread_name(thread.pid, tid));
            let signal = self.threads.get(&tid).and_then(|thread| thread.signal);
            self.record(tid, name);
            if !self.ours {
                let _ = ptrace::detach(tid, signal.map_or(0, |info| info.signal()));
            }
        }
        // Whoever started these was not in the cache then.
        for newborn in self.newborns() {
            match self.ours {
                true => end_process_of(newborn),
                false => drop(ptrace::detach(newborn, 0)),
            }
        }
        if self.ours {
            let pending = self.pending.as_ref().map(|spawned| spawned.pid);
            pids.into_iter().chain(pending).for_each(ptrace::kill);
        }
        self.over = true;
        self.hold = Hold::Nobody;
    }
}

/// Kills the process of a thread.
pub(super) fn end_process_of(tid: RawTid) {
    ptrace::kill(status::thread_group(tid).unwrap_or(tid));
}
