//! ptrace and its kin as safe functions, and what their numbers mean. All `unsafe` of starting and
//! stepping stands here.
//!
//! Threads are attached with `PTRACE_SEIZE`, so that group-stops can be told from signals.
//! Source: ptrace(2), `linux/ptrace.h`.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use backtrail_bundle::core::{Registers, SigInfo};
use libc::{c_int, c_long, c_void};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem::size_of;
use std::ptr;
use std::time::{Duration, Instant};

pub(crate) use backtrail_process::RawTid;

/// What `waitpid` says happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is gone, with this exit status.
    Exited(i32),
    /// It is gone, killed by this signal.
    Killed(i32),
    /// Signal-delivery-stop: the signal is not delivered unless handed back on resuming.
    Signal(i32),
    /// A `PTRACE_EVENT_…` other than a stop.
    Event(c_int),
    /// Group-stop by this signal: only `listen` keeps it stopped as its shell expects.
    Group(i32),
    /// Stopped because we asked, newly attached, or woken from a group-stop.
    Interrupted,
}

impl Stop {
    fn of(status: c_int) -> Self {
        if libc::WIFEXITED(status) {
            return Self::Exited(libc::WEXITSTATUS(status));
        }
        if libc::WIFSIGNALED(status) {
            return Self::Killed(libc::WTERMSIG(status));
        }
        match (status >> 16, libc::WSTOPSIG(status)) {
            (0, signal) => Self::Signal(signal),
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Self::Interrupted,
            (libc::PTRACE_EVENT_STOP, signal) => Self::Group(signal),
            (event, _) => Self::Event(event),
        }
    }
}

fn request(
    action: &'static str,
    request: libc::c_uint,
    tid: RawTid,
    addr: usize,
    data: usize,
) -> Result<c_long> {
    // SAFETY: every request used here reads or writes the tracee only, or a local buffer that the caller
    // passes by `data` and that outlives the call.
    let result = unsafe { libc::ptrace(request, tid, addr as *mut c_void, data as *mut c_void) };
    if result == -1 {
        return Err(Error::Ptrace {
            action,
            tid: tid as u32,
            source: io::Error::last_os_error(),
        });
    }
    Ok(result)
}

/// Attaches without stopping.
pub(crate) fn seize(tid: RawTid, options: c_int) -> Result<()> {
    request("attach to", libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

/// Runs one instruction, delivering `signal` unless 0.
pub(crate) fn step(tid: RawTid, signal: i32) -> Result<()> {
    request("step", libc::PTRACE_SINGLESTEP, tid, 0, signal as usize).map(drop)
}

/// Runs freely, delivering `signal` unless 0.
pub(crate) fn resume(tid: RawTid, signal: i32) -> Result<()> {
    request("resume", libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Keeps a group-stopped thread stopped, but tells when it wakes.
pub(crate) fn listen(tid: RawTid) -> Result<()> {
    request("listen to", libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// Asks a running thread to stop, without a signal.
pub(crate) fn interrupt(tid: RawTid) -> Result<()> {
    request("interrupt", libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Lets a stopped thread go, delivering `signal` unless 0. Its single-step flag is gone with it.
pub(crate) fn detach(tid: RawTid, signal: i32) -> Result<()> {
    request("detach from", libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// The general registers.
pub(crate) fn registers(tid: RawTid) -> Result<Registers> {
    let mut words = [0u64; Registers::NAMES.len()];
    request(
        "read the registers of",
        libc::PTRACE_GETREGS,
        tid,
        0,
        words.as_mut_ptr() as usize,
    )?;
    Ok(Registers::from_array(words))
}

/// Sets the general registers.
pub(crate) fn set_registers(tid: RawTid, registers: &Registers) -> Result<()> {
    let words = registers.to_array();
    request(
        "set the registers of",
        libc::PTRACE_SETREGS,
        tid,
        0,
        words.as_ptr() as usize,
    )
    .map(drop)
}

/// Writes a word into a stopped thread's memory, whatever the protection of its page.
pub(crate) fn write_word(tid: RawTid, address: u64, word: u64) -> Result<()> {
    let action = "write to the memory of";
    request(
        action,
        libc::PTRACE_POKEDATA,
        tid,
        address as usize,
        word as usize,
    )
    .map(drop)
}

/// A register set by its note type (`NT_FPREGSET`, `NT_X86_XSTATE`); empty when there is none.
pub(crate) fn register_set(tid: RawTid, note: u32) -> Vec<u8> {
    /// More than any XSAVE area of today (AMX: 11 KiB).
    const ROOM: usize = 1 << 15;
    let mut bytes = vec![0u8; ROOM];
    let mut area = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let result = request(
        "read the registers of",
        libc::PTRACE_GETREGSET,
        tid,
        note as usize,
        (&raw mut area) as usize,
    );
    bytes.truncate(if result.is_ok() { area.iov_len } else { 0 });
    bytes
}

/// What the signal of a signal-delivery-stop says.
pub(crate) fn siginfo(tid: RawTid) -> Result<SigInfo> {
    let mut info = SigInfo([0; SigInfo::SIZE]);
    request(
        "ask the signal of",
        libc::PTRACE_GETSIGINFO,
        tid,
        0,
        info.0.as_mut_ptr() as usize,
    )?;
    Ok(info)
}

/// Makes sure that SIGTRAP is not blocked in a stopped thread.
///
/// The trap of a step would be forced on it all the same, but then the kernel takes the program's
/// SIGTRAP handler away (`force_sig_info_to_task`).
pub(crate) fn unblock_trap(tid: RawTid) {
    const SIZE: usize = size_of::<u64>();
    const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
    let mut mask = [0u64];
    let known = request(
        "ask the mask of",
        libc::PTRACE_GETSIGMASK as _,
        tid,
        SIZE,
        mask.as_mut_ptr() as usize,
    )
    .is_ok();
    let without = mask.map(|mask| mask & !TRAP);
    if known && mask != without {
        // A thread that was killed meanwhile needs no mask.
        let _ = request(
            "set the mask of",
            libc::PTRACE_SETSIGMASK as _,
            tid,
            SIZE,
            without.as_ptr() as usize,
        );
    }
}

/// What a wait came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A thread has stopped or gone.
    Report(RawTid, Stop),
    /// A signal, or the end of the time, ended the wait.
    Interrupted,
    /// There is nobody to wait for.
    Nobody,
}

thread_local! {
    /// Reports that were taken by someone who waited for another.
    static PUT_BACK: RefCell<VecDeque<(RawTid, Stop)>> = const { RefCell::new(VecDeque::new()) };
}

/// Lets [`wait_any`] find a report of [`wait_for`] once more.
pub(crate) fn put_back(tid: RawTid, stop: Stop) {
    PUT_BACK.with_borrow_mut(|reports| reports.push_back((tid, stop)));
}

/// Waits until one of the calling thread's tracees and children reports.
///
/// Other threads' children in this process are not touched (`__WNOTHREAD`).
pub(crate) fn wait_any() -> Result<Wait> {
    wait(0)
}

/// As [`wait_any`], no longer than until `deadline`.
pub(crate) fn wait_within(deadline: Instant) -> Result<Wait> {
    const PAUSE: Duration = Duration::from_micros(100);
    loop {
        match wait(libc::WNOHANG)? {
            Wait::Interrupted if Instant::now() < deadline => std::thread::sleep(PAUSE),
            found => return Ok(found),
        }
    }
}

/// Waits for one stopped or ending thread.
pub(crate) fn wait_for(tid: RawTid) -> Result<Stop> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the answer.
        let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if found == tid {
            return Ok(Stop::of(status));
        }
        let source = io::Error::last_os_error();
        if source.raw_os_error() != Some(libc::EINTR) {
            return Err(Error::System {
                action: "wait for the program",
                source,
            });
        }
    }
}

/// What the event of an event stop says: of a new thread, its id.
pub(crate) fn event_message(tid: RawTid) -> Result<u64> {
    let mut message = [0u64];
    request(
        "ask the event of",
        libc::PTRACE_GETEVENTMSG,
        tid,
        0,
        message.as_mut_ptr() as usize,
    )?;
    Ok(message.first().copied().unwrap_or(0))
}

/// Changes what the signal of a signal-delivery-stop says.
pub(crate) fn set_siginfo(tid: RawTid, info: &SigInfo) -> Result<()> {
    request(
        "set the signal of",
        libc::PTRACE_SETSIGINFO,
        tid,
        0,
        info.0.as_ptr() as usize,
    )
    .map(drop)
}

fn wait(flags: c_int) -> Result<Wait> {
    if let Some((tid, stop)) = PUT_BACK.with_borrow_mut(VecDeque::pop_front) {
        return Ok(Wait::Report(tid, stop));
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the answer.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD | flags) };
    if tid >= 0 {
        return Ok(if tid == 0 {
            Wait::Interrupted
        } else {
            Wait::Report(tid, Stop::of(status))
        });
    }
    let source = io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::EINTR) => Ok(Wait::Interrupted),
        Some(libc::ECHILD) => Ok(Wait::Nobody),
        _ => Err(Error::System {
            action: "wait for the program",
            source,
        }),
    }
}

/// Sends a signal to a thread.
pub(crate) fn send(pid: RawTid, tid: RawTid, signal: i32) {
    // SAFETY: tgkill(2) touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
}

/// Kills a whole process.
pub(crate) fn kill(pid: RawTid) {
    signal(pid, libc::SIGKILL);
}

/// Sends a signal to a process; one that is gone gets none.
pub(crate) fn signal(pid: RawTid, signal: i32) {
    // SAFETY: kill(2) touches no memory of ours.
    unsafe { libc::kill(pid, signal) };
}

/// A set of processors.
pub(crate) type CpuSet = libc::cpu_set_t;

/// On which processors a thread (0: the caller) may run.
pub(crate) fn affinity(tid: RawTid) -> Option<CpuSet> {
    // SAFETY: an all-zero set is a valid (empty) one, and the kernel writes no more than its size.
    unsafe {
        let mut set: CpuSet = std::mem::zeroed();
        (libc::sched_getaffinity(tid, size_of::<CpuSet>(), &raw mut set) == 0).then_some(set)
    }
}

/// Sets where a thread (0: the caller) may run; failing is no harm but slower steps.
pub(crate) fn set_affinity(tid: RawTid, set: &CpuSet) {
    // SAFETY: the kernel reads the set only.
    unsafe { libc::sched_setaffinity(tid, size_of::<CpuSet>(), ptr::from_ref(set)) };
}

/// The processors of `all` that are not in `some`; `None`: there are none.
pub(crate) fn without(all: &CpuSet, some: &CpuSet) -> Option<CpuSet> {
    // SAFETY: an all-zero set is a valid (empty) one; the index stays below the sets' size.
    unsafe {
        let mut set: CpuSet = std::mem::zeroed();
        for cpu in 0..libc::CPU_SETSIZE as usize {
            if libc::CPU_ISSET(cpu, all) && !libc::CPU_ISSET(cpu, some) {
                libc::CPU_SET(cpu, &mut set);
            }
        }
        (libc::CPU_COUNT(&set) > 0).then_some(set)
    }
}

/// The processor the caller runs on, as a set.
pub(crate) fn current_cpu() -> Option<CpuSet> {
    // SAFETY: an all-zero set is a valid (empty) one; `CPU_SET` checks its index against the set's size.
    unsafe {
        let cpu = usize::try_from(libc::sched_getcpu()).ok()?;
        let mut set: CpuSet = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        Some(set)
    }
}
