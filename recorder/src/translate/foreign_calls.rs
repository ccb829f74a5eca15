//! System calls in a thread whose process has no memory of the recorder. Their arguments are below
//! its stack.

use super::tracee::{Gadget, Tracee};
use crate::error::{Error, Result};
use crate::ptrace::{self, RawTid};
use crate::remote;
use crate::signal_state::{SIGNAL_SET_SIZE, SignalAction};
use crate::stepped::restarted;
use backtrail_bundle::core::SigInfo;
use backtrail_process::{memory, status};
use std::io;

/// The distance from the stack pointer: more than the red zone of 128 bytes, which is in use.
const BELOW_STACK: u64 = 1 << 10;

/// Sets a disposition in the process of a stopped thread.
pub(crate) fn set_action(tid: RawTid, signal: i32, action: &SignalAction) -> Result<()> {
    with_argument(tid, &action.to_bytes(), |at| {
        let arguments = [signal as u64, at, 0, SIGNAL_SET_SIZE, 0, 0];
        call(tid, find_gadget(tid)?, libc::SYS_rt_sigaction, arguments).map(drop)
    })
}

/// Returns the disposition of a signal in the process of a stopped thread.
pub(crate) fn read_action(tid: RawTid, signal: i32) -> Result<SignalAction> {
    with_argument(tid, &SignalAction::default().to_bytes(), |at| {
        let arguments = [signal as u64, 0, at, SIGNAL_SET_SIZE, 0, 0];
        call(tid, find_gadget(tid)?, libc::SYS_rt_sigaction, arguments)?;
        let read = remote::words(tid, at).map(SignalAction);
        read.ok_or_else(|| failure(tid, "read the stack of", libc::EFAULT))
    })
}

/// Makes a stopped thread send a signal to itself, with this information.
pub(crate) fn queue(tid: RawTid, pid: RawTid, info: &SigInfo) -> Result<()> {
    with_argument(tid, &info.0, |at| {
        let [own_pid, own_tid] = status::own_ids(pid, tid);
        let arguments = [own_pid, own_tid, info.signal() as u64, at, 0, 0];
        call(tid, find_gadget(tid)?, libc::SYS_rt_tgsigqueueinfo, arguments).map(drop)
    })
}

/// Sets the dumpable attribute of a process, and returns its value before. The stopped thread has
/// made a system call, whose next instruction is at `next`. The memory need not be readable.
pub(crate) fn keep_dumpable(tid: RawTid, next: u64) -> Result<u64> {
    let gadget = Gadget::before(next);
    let dumpable = prctl(tid, gadget, libc::PR_GET_DUMPABLE, 0)?;
    prctl(tid, gadget, libc::PR_SET_DUMPABLE, 1)?;
    Ok(dumpable)
}

/// Clears the dumpable attribute of the process of a stopped thread.
pub(crate) fn clear_dumpable(tid: RawTid) -> Result<()> {
    prctl(tid, find_gadget(tid)?, libc::PR_SET_DUMPABLE, 0).map(drop)
}

fn prctl(tid: RawTid, gadget: Gadget, option: libc::c_int, value: u64) -> Result<u64> {
    call(tid, gadget, libc::SYS_prctl, [option as u64, value, 0, 0, 0, 0])
}

/// Calls `action` with the address of a copy of `bytes` below the stack, and restores the memory
/// there. Small stacks may end above it.
fn with_argument<T>(tid: RawTid, bytes: &[u8], action: impl FnOnce(u64) -> Result<T>) -> Result<T> {
    let at = ptrace::registers(tid)?.rsp.wrapping_sub(BELOW_STACK) & !15;
    let mut before = vec![0; bytes.len()];
    let is_copied = memory::read(tid, at, &mut before) == bytes.len() && remote::write(tid, at, bytes);
    if !is_copied {
        return Err(failure(tid, "write to the stack of", libc::EFAULT));
    }
    let done = action(at);
    remote::write(tid, at, &before);
    done
}

fn find_gadget(tid: RawTid) -> Result<Gadget> {
    Gadget::find(tid).ok_or_else(|| failure(tid, "find a system call instruction for", libc::ENOENT))
}

fn failure(tid: RawTid, action: &'static str, code: i32) -> Error {
    Error::Ptrace {
        action,
        tid: tid as u32,
        source: io::Error::from_raw_os_error(code),
    }
}

/// Makes a system call in a stopped thread, and restores its registers.
fn call(tid: RawTid, gadget: Gadget, number: libc::c_long, arguments: [u64; 6]) -> Result<u64> {
    let registers = ptrace::registers(tid)?;
    let mut held = Vec::new();
    let mut tracee = Tracee {
        tid,
        gadget,
        registers,
        held: &mut held,
    };
    let called = tracee.call(number, arguments);
    ptrace::set_registers(tid, &restarted(&registers))?;
    let pid = status::thread_group(tid).unwrap_or(tid);
    for info in held {
        ptrace::send(pid, tid, info.signal());
    }
    called
}
