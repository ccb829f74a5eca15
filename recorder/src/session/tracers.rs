//! Recorded programs that trace others by ptrace(2).
//!
//! A thread has only one tracer. If a program traces another recorded process, as strace and gdb
//! do, the recorder releases that process. If it traces threads of its own memory, as LeakSanitizer
//! does, the recorder stops these threads and answers the requests itself.

use super::translated::{TranslatedThread, translated_thread};
use super::{Hold, Session};
use crate::error::Result;
use crate::ptrace::{self, RawTid, WaitResult};
use crate::remote;
use crate::thread::FollowMode;
use backtrail_bundle::core::Registers;
use backtrail_process::status;
use std::time::{Duration, Instant};

/// Requests (`linux/ptrace.h`).
mod request {
    pub(super) const TRACEME: u64 = 0;
    pub(super) const PEEKTEXT: u64 = 1;
    pub(super) const PEEKDATA: u64 = 2;
    pub(super) const CONT: u64 = 7;
    pub(super) const GETREGS: u64 = 12;
    pub(super) const GETFPREGS: u64 = 14;
    pub(super) const ATTACH: u64 = 16;
    pub(super) const DETACH: u64 = 17;
    pub(super) const SETOPTIONS: u64 = 0x4200;
    pub(super) const GETREGSET: u64 = 0x4204;
    pub(super) const SEIZE: u64 = 0x4206;
}
/// The wait status of a thread that SIGSTOP has stopped.
const STOPPED: u32 = (libc::SIGSTOP as u32) << 8 | 0x7f;
/// `NT_PRFPREG` (`linux/elf.h`).
const FLOATING_POINT: u32 = 2;

/// A thread that is stopped on behalf of a program that traces it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrozenThread {
    /// The process that traces it.
    tracer: RawTid,
    /// Whether `wait4` has reported the stop.
    is_reported: bool,
}

/// The result of a system call that the recorder has handled.
enum CallResult {
    /// The kernel executes the call.
    Native,
    /// The call returns this value.
    Returns(i64),
    /// The calling thread is no longer traced.
    Released,
}

impl Session<'_> {
    /// Handles a ptrace or wait4 call. Returns whether the call is complete, so that the thread
    /// needs no further action.
    pub(super) fn on_tracing_call(&mut self, tid: RawTid, registers: &Registers) -> Result<bool> {
        let result = if registers.rax == libc::SYS_wait4 as u64 {
            self.emulate_wait(tid, registers)
        } else {
            self.ptrace_result(tid, registers)?
        };
        match result {
            CallResult::Native => Ok(false),
            CallResult::Released => Ok(true),
            CallResult::Returns(value) => {
                if let Some(TranslatedThread {
                    translated, encoders, ..
                }) = translated_thread(&mut self.threads, &self.encoders, tid)
                {
                    translated.complete_call(registers, value, encoders)?;
                }
                self.resume_thread(tid);
                Ok(true)
            }
        }
    }

    fn ptrace_result(&mut self, tid: RawTid, registers: &Registers) -> Result<CallResult> {
        let Some(pid) = self.threads.get(&tid).map(|thread| thread.pid) else {
            return Ok(CallResult::Native);
        };
        let target = registers.rsi as RawTid;
        match registers.rdi {
            request::TRACEME => {
                let parent = status::parent_and_owner(pid)[0] as RawTid;
                if self.processes.contains_key(&parent) {
                    self.release(pid, parent)?;
                    return Ok(CallResult::Released);
                }
                let state = self.process_states.entry(pid).or_default();
                if std::mem::replace(&mut state.is_tracee, true) {
                    return Ok(CallResult::Returns(-i64::from(libc::EPERM)));
                }
                self.note_once(format!(
                    "process {pid} called ptrace(PTRACE_TRACEME); the call returned 0, and the recorder stayed its \
                     tracer"
                ));
                Ok(CallResult::Returns(0))
            }
            request::ATTACH | request::SEIZE => {
                let Some(target_pid) = self.threads.get(&target).map(|thread| thread.pid) else {
                    return Ok(CallResult::Native);
                };
                if target_pid == pid {
                    return Ok(CallResult::Native);
                }
                if self.shares_memory(tid, target) {
                    return self.freeze(pid, target);
                }
                self.release(target_pid, pid)?;
                Ok(CallResult::Native)
            }
            _ => match self.frozen.get(&target) {
                Some(frozen) if frozen.tracer == pid => Ok(self.emulate_request(pid, target, registers)),
                _ => Ok(CallResult::Native),
            },
        }
    }

    /// Handles a ptrace or wait4 call of a single-stepped thread, before the kernel does. Returns
    /// whether the thread was released.
    pub(super) fn on_stepped_tracing_call(&mut self, tid: RawTid) -> Result<bool> {
        let registers = ptrace::registers(tid)?;
        let result = if registers.rax == libc::SYS_wait4 as u64 {
            self.emulate_wait(tid, &registers)
        } else {
            self.ptrace_result(tid, &registers)?
        };
        if let CallResult::Returns(value) = result
            && let Some(thread) = self.threads.get_mut(&tid)
            && let FollowMode::Stepped(stepped) = &mut thread.mode
        {
            stepped.replace_result(value)?;
        }
        Ok(matches!(result, CallResult::Released))
    }

    /// Adds a note, unless it is there already.
    pub(super) fn note_once(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Returns whether two threads of different processes run in the same memory.
    fn shares_memory(&self, one: RawTid, other: RawTid) -> bool {
        let memory = |tid: RawTid| match self.threads.get(&tid).map(|thread| &thread.mode) {
            Some(FollowMode::Translated(translated)) => Some(translated.memory),
            _ => None,
        };
        match (memory(one), memory(other)) {
            (Some(one), Some(other)) => one == other,
            _ => status::shares_memory(one, other),
        }
    }

    /// Ends the recording of a process that the process `tracer` traces from now on.
    fn release(&mut self, pid: RawTid, tracer: RawTid) -> Result<()> {
        self.halt(Hold::Process(pid))?;
        self.update_image(pid, None);
        let tids = self.tids(|thread| thread.pid == pid);
        for tid in &tids {
            if self.is_stopped(*tid)
                && let Ok(registers) = ptrace::registers(*tid)
            {
                self.restore_program_state(*tid, &registers)?;
                self.restore_signals(*tid, true)?;
            }
        }
        self.restore_dumpable(pid);
        if let Some(first) = tids.iter().copied().find(|tid| self.is_stopped(*tid))
            && !self.is_memory_shared(first, pid)
        {
            if self.shares_cache(first) {
                let registers = ptrace::registers(first)?;
                self.unshare(first, &registers)?;
            }
            if let Some(TranslatedThread { translated, .. }) =
                translated_thread(&mut self.threads, &self.encoders, first)
            {
                translated.remove_additions()?;
            }
        }
        for tid in tids {
            let ip = ptrace::registers(tid).ok().map(|registers| registers.pc());
            let signal = match self.threads.get_mut(&tid) {
                Some(thread) => {
                    thread.close(ip, self.encoders.as_ref());
                    thread.signal.take()
                }
                None => None,
            };
            self.record(tid, status::thread_name(pid, tid));
            let _ = ptrace::detach(tid, signal.map_or(0, |info| info.signal()));
        }
        self.hold = Hold::Nobody;
        self.released.insert(pid);
        let name = status::thread_name(tracer, tracer).unwrap_or_default();
        self.notes.push(format!(
            "process {tracer} ({name}) traces process {pid} by ptrace; recording of process {pid} ended there, \
             because a process has only one tracer"
        ));
        Ok(())
    }

    /// Returns whether another process runs in the memory of a thread, such as the parent after
    /// vfork.
    fn is_memory_shared(&self, tid: RawTid, pid: RawTid) -> bool {
        let others = self.tids(|thread| thread.pid != pid);
        others.into_iter().any(|other| self.shares_memory(tid, other))
    }

    /// Stops a thread on behalf of a process that traces it.
    fn freeze(&mut self, tracer: RawTid, target: RawTid) -> Result<CallResult> {
        /// The time limit for the stop.
        const TIMEOUT: Duration = Duration::from_secs(2);
        let is_reported = false;
        self.frozen.insert(target, FrozenThread { tracer, is_reported });
        if let Some(TranslatedThread { translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, target)
        {
            translated.space.borrow_mut().intercept(libc::SYS_wait4);
        }
        if !self.is_stopped(target) {
            let _ = ptrace::interrupt(target);
        }
        let deadline = Instant::now() + TIMEOUT;
        while self.threads.contains_key(&target) && !self.is_stopped(target) {
            match ptrace::wait_within(deadline)? {
                WaitResult::Report(tid, stop) => self.on_stop(tid, stop)?,
                WaitResult::Interrupted if Instant::now() < deadline => {}
                WaitResult::Interrupted | WaitResult::NoTracees => break,
            }
        }
        if !self.is_stopped(target) {
            self.frozen.remove(&target);
            return Ok(CallResult::Returns(-i64::from(libc::ESRCH)));
        }
        self.note_once(format!(
            "process {tracer} traces threads of its own memory by ptrace, as LeakSanitizer does; the recorder \
             answered its requests"
        ));
        Ok(CallResult::Returns(0))
    }

    /// Resumes the threads that a process has stopped, when that process ends.
    pub(super) fn thaw_all(&mut self, tracer: RawTid) {
        let tids = self.frozen.iter().filter(|(_, frozen)| frozen.tracer == tracer);
        let tids: Vec<RawTid> = tids.map(|(tid, _)| *tid).collect();
        for tid in tids {
            self.frozen.remove(&tid);
            self.resume_thread(tid);
        }
    }

    /// Answers a request for a thread that is stopped on behalf of the caller.
    fn emulate_request(&mut self, pid: RawTid, target: RawTid, registers: &Registers) -> CallResult {
        let (address, data) = (registers.rdx, registers.r10);
        let errno = |code: i32| -i64::from(code);
        let written = |done: bool| CallResult::Returns(if done { 0 } else { errno(libc::EFAULT) });
        match registers.rdi {
            request::DETACH | request::CONT => {
                self.frozen.remove(&target);
                self.resume_thread(target);
                CallResult::Returns(0)
            }
            request::GETREGS => match ptrace::registers(target) {
                Ok(found) => {
                    let bytes = found.to_array().map(u64::to_le_bytes).concat();
                    written(remote::write(pid, data, &bytes))
                }
                Err(_) => CallResult::Returns(errno(libc::ESRCH)),
            },
            request::GETFPREGS => {
                let bytes = ptrace::register_set(target, FLOATING_POINT);
                written(remote::write(pid, data, &bytes))
            }
            request::GETREGSET => match remote::words::<2>(pid, data) {
                Some([base, room]) => {
                    let mut bytes = ptrace::register_set(target, address as u32);
                    bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
                    if bytes.is_empty() {
                        return CallResult::Returns(errno(libc::EINVAL));
                    }
                    let len = bytes.len() as u64;
                    written(
                        remote::write(pid, base, &bytes)
                            && remote::write(pid, data.wrapping_add(8), &len.to_le_bytes()),
                    )
                }
                None => CallResult::Returns(errno(libc::EFAULT)),
            },
            request::PEEKTEXT | request::PEEKDATA => match remote::words::<1>(target, address) {
                Some([word]) => written(remote::write(pid, data, &word.to_le_bytes())),
                None => CallResult::Returns(errno(libc::EIO)),
            },
            request::SETOPTIONS => CallResult::Returns(0),
            _ => CallResult::Returns(errno(libc::EIO)),
        }
    }

    /// Reports the stop of a thread that is stopped on behalf of the caller.
    fn emulate_wait(&mut self, tid: RawTid, registers: &Registers) -> CallResult {
        let Some(pid) = self.threads.get(&tid).map(|thread| thread.pid) else {
            return CallResult::Native;
        };
        let wanted = registers.rdi as RawTid;
        let found = self.frozen.iter_mut().find(|(target, frozen)| {
            frozen.tracer == pid && !frozen.is_reported && (wanted == -1 || wanted == **target)
        });
        let Some((target, frozen)) = found else {
            return CallResult::Native;
        };
        frozen.is_reported = true;
        if registers.rsi != 0 && !remote::write(pid, registers.rsi, &STOPPED.to_le_bytes()) {
            return CallResult::Returns(-i64::from(libc::EFAULT));
        }
        CallResult::Returns(i64::from(*target))
    }
}
