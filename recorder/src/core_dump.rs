//! Builds the core of a process whose threads are all stopped, with the contents of a kernel core
//! (core(5)).

use crate::ptrace::{self, RawTid};
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::core::{self, CoreContents, CoreThread, Registers, SigInfo};
use backtrail_process::{memory, thread_context};
use backtrail_pt::{Avma, Tid};
use std::fs::File;
use std::io;

/// x87 and SSE state (`linux/elf.h`).
const NT_FPREGSET: u32 = 2;
/// The XSAVE area.
const NT_X86_XSTATE: u32 = 0x202;

/// A stopped thread, with its state for the core.
pub(crate) struct StoppedThread {
    pub(crate) tid: RawTid,
    pub(crate) registers: Registers,
    /// The signal that is about to be delivered.
    pub(crate) signal: Option<SigInfo>,
}

/// Describes the core of a process. The first of `threads` is the one that received the signal.
/// `added` lists the memory that the recorder added, as start and size.
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

/// Reads the context that a process published, and those of the threads in `contents`. The process
/// must still be stopped.
pub(crate) fn published_context(pid: RawTid, contents: &CoreContents) -> Option<PublishedContext> {
    let threads = contents.threads.iter();
    let threads = threads.map(|thread| (thread.tid, thread.registers.fs_base));
    thread_context::of_stopped_process(pid, threads)
}

/// Writes the core. The process must still be stopped.
pub(crate) fn write(file: &mut File, pid: RawTid, contents: &CoreContents) -> io::Result<u64> {
    core::write(file, contents, |address: Avma, out: &mut [u8]| {
        memory::read(pid, address.0, out)
    })
}
