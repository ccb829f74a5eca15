//! The core of a process whose threads are all stopped: what the kernel's own would hold (core(5)).

use crate::ptrace::{self, RawTid};
use backtrail_bundle::core::{self, CoreContents, CoreThread, Registers, SigInfo};
use backtrail_process::memory;
use backtrail_pt::{Avma, Tid};
use std::fs::File;
use std::io;

/// x87 and SSE state (`linux/elf.h`).
const NT_FPREGSET: u32 = 2;
/// The XSAVE area.
const NT_X86_XSTATE: u32 = 0x202;

/// A stopped thread, as it goes into the core.
pub(crate) struct StoppedThread {
    pub(crate) tid: RawTid,
    pub(crate) registers: Registers,
    /// The signal it is about to take.
    pub(crate) signal: Option<SigInfo>,
}

/// Describes the process; the first of `threads` is the one that took the signal. `added` is what the
/// recorder has put there, start and size of each.
pub(crate) fn describe(pid: RawTid, threads: &[StoppedThread], added: &[(u64, u64)]) -> CoreContents {
    let core_thread = |thread: &StoppedThread| CoreThread {
        tid: Tid(thread.tid as u32),
        signal: thread.signal.map_or(0, |info| info.signal()),
        registers: thread.registers,
        siginfo: thread.signal,
        fpregs: ptrace::register_set(thread.tid, NT_FPREGSET),
        xstate: ptrace::register_set(thread.tid, NT_X86_XSTATE),
    };
    CoreContents {
        threads: threads.iter().map(core_thread).collect(),
        ..backtrail_process::core_dump::describe(pid, added)
    }
}

/// Writes the core; the process must still be stopped.
pub(crate) fn write(file: &mut File, pid: RawTid, contents: &CoreContents) -> io::Result<u64> {
    core::write(file, contents, |address: Avma, out: &mut [u8]| {
        memory::read(pid, address.0, out)
    })
}
