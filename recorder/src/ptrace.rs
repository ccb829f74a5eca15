//! Safe wrappers of ptrace and related system calls. The `unsafe` code for stepping is in this
//! file.
//!
//! Threads are attached with `PTRACE_SEIZE`, which distinguishes group-stops from signals. Source:
//! ptrace(2), `linux/ptrace.h`.
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

/// A report of `waitpid` about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The thread exited with this status.
    Exited(i32),
    /// This signal killed the thread.
    Killed(i32),
    /// Signal-delivery-stop: the signal is lost unless the tracer passes it on when it resumes the
    /// thread.
    Signal(i32),
    /// Stopped at the start or end of a system call, after [`resume_to_syscall`].
    Syscall,
    /// A `PTRACE_EVENT_…` stop other than `PTRACE_EVENT_STOP`.
    Event(c_int),
    /// Group-stop by this signal. `listen` keeps the thread stopped, as job control expects.
    Group(i32),
    /// Stopped by `interrupt`, after attaching, or at the end of a group-stop.
    Interrupted,
}

/// The stop signal at a system call, with `PTRACE_O_TRACESYSGOOD`.
const SYSCALL_STOP: c_int = libc::SIGTRAP | 0x80;

impl Stop {
    fn of(status: c_int) -> Self {
        if libc::WIFEXITED(status) {
            return Self::Exited(libc::WEXITSTATUS(status));
        }
        if libc::WIFSIGNALED(status) {
            return Self::Killed(libc::WTERMSIG(status));
        }
        match (status >> 16, libc::WSTOPSIG(status)) {
            (0, SYSCALL_STOP) => Self::Syscall,
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
    // SAFETY: every request used here accesses only the tracee, or a local buffer that the caller
    // passes in `data` and that outlives the call.
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

/// Attaches to a thread without stopping it.
pub(crate) fn seize(tid: RawTid, options: c_int) -> Result<()> {
    request("attach to", libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

/// Executes one instruction, and delivers `signal` unless it is 0.
pub(crate) fn step(tid: RawTid, signal: i32) -> Result<()> {
    request("step", libc::PTRACE_SINGLESTEP, tid, 0, signal as usize).map(drop)
}

/// Resumes a thread, and delivers `signal` unless it is 0.
pub(crate) fn resume(tid: RawTid, signal: i32) -> Result<()> {
    request("resume", libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Resumes a thread until the start or end of its next system call.
pub(crate) fn resume_to_syscall(tid: RawTid) -> Result<()> {
    request("resume", libc::PTRACE_SYSCALL, tid, 0, 0).map(drop)
}

/// Keeps a thread in its group-stop, and reports the end of the stop.
pub(crate) fn listen(tid: RawTid) -> Result<()> {
    request("listen to", libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// Asks a running thread to stop, without a signal.
pub(crate) fn interrupt(tid: RawTid) -> Result<()> {
    request("interrupt", libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Detaches from a stopped thread, and delivers `signal` unless it is 0. This clears its trap flag.
pub(crate) fn detach(tid: RawTid, signal: i32) -> Result<()> {
    request("detach from", libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// Returns the general-purpose registers.
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

/// Sets the general-purpose registers.
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

/// Writes a word to the memory of a stopped thread, regardless of page protection.
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

/// Returns a register set by its note type (`NT_FPREGSET`, `NT_X86_XSTATE`), empty if there is
/// none.
pub(crate) fn register_set(tid: RawTid, note: u32) -> Vec<u8> {
    /// More than the largest XSAVE area (AMX: 11 KiB).
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

/// Sets a register set by its note type.
pub(crate) fn set_register_set(tid: RawTid, note: u32, bytes: &[u8]) -> Result<()> {
    let area = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    request(
        "set the registers of",
        libc::PTRACE_SETREGSET,
        tid,
        note as usize,
        (&raw const area) as usize,
    )
    .map(drop)
}

/// Returns the siginfo of a signal-delivery-stop.
pub(crate) fn siginfo(tid: RawTid) -> Result<SigInfo> {
    let mut info = SigInfo([0; SigInfo::SIZE]);
    request(
        "read the siginfo of",
        libc::PTRACE_GETSIGINFO,
        tid,
        0,
        info.0.as_mut_ptr() as usize,
    )?;
    Ok(info)
}

/// Returns a seccomp filter of a thread, the newest first. Returns `None` if there is none, or if
/// the recorder may not read filters. The filter has at most `room` instructions.
pub(crate) fn seccomp_filter(tid: RawTid, index: usize, room: usize) -> Option<Vec<u8>> {
    /// `PTRACE_SECCOMP_GET_FILTER`.
    const GET_FILTER: libc::c_uint = 0x420c;
    let mut words = vec![0u64; room];
    let len = request(
        "read the seccomp filter of",
        GET_FILTER,
        tid,
        index,
        words.as_mut_ptr() as usize,
    )
    .ok()?;
    words.truncate(usize::try_from(len).ok()?);
    Some(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// The size of a signal set in the kernel.
const SIGNAL_SET_SIZE: usize = size_of::<u64>();

/// Returns the signals that a stopped thread blocks: signal N is bit N-1.
pub(crate) fn signal_mask(tid: RawTid) -> Result<u64> {
    let mut mask = [0u64];
    request(
        "read the signal mask of",
        libc::PTRACE_GETSIGMASK as _,
        tid,
        SIGNAL_SET_SIZE,
        mask.as_mut_ptr() as usize,
    )?;
    Ok(mask.first().copied().unwrap_or(0))
}

/// Sets the signals that a stopped thread blocks.
pub(crate) fn set_signal_mask(tid: RawTid, mask: u64) -> Result<()> {
    let mask = [mask];
    request(
        "set the signal mask of",
        libc::PTRACE_SETSIGMASK as _,
        tid,
        SIGNAL_SET_SIZE,
        mask.as_ptr() as usize,
    )
    .map(drop)
}

/// The configuration of system call dispatch (`linux/ptrace.h`,
/// `struct ptrace_sud_config`): mode, selector, offset and length of the allowed addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyscallDispatch([u64; 4]);

impl SyscallDispatch {
    const SET: libc::c_uint = 0x4210;
    const GET: libc::c_uint = 0x4211;

    /// Turns system call dispatch off in a stopped thread, and returns its configuration.
    pub(crate) fn disable(tid: RawTid) -> Result<Self> {
        let action = "turn off system call dispatch in";
        let mut config = [0u64; 4];
        let size = size_of_val(&config);
        request(action, Self::GET, tid, size, config.as_mut_ptr() as usize)?;
        let off = [0u64; 4];
        request(action, Self::SET, tid, size, off.as_ptr() as usize)?;
        Ok(Self(config))
    }

    /// Restores the configuration. A thread that was killed in the meantime needs none.
    pub(crate) fn restore(self, tid: RawTid) {
        let size = size_of_val(&self.0);
        let action = "turn on system call dispatch in";
        let _ = request(action, Self::SET, tid, size, self.0.as_ptr() as usize);
    }
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitResult {
    /// A thread has stopped or ended.
    Report(RawTid, Stop),
    /// A signal or the deadline ended the wait.
    Interrupted,
    /// The calling thread has no tracees or children.
    NoTracees,
}

thread_local! {
    /// Reports that a wait for another thread received.
    static PUT_BACK: RefCell<VecDeque<(RawTid, Stop)>> = const { RefCell::new(VecDeque::new()) };
}

/// Queues a report of [`wait_for`] so that [`wait_any`] returns it.
pub(crate) fn put_back(tid: RawTid, stop: Stop) {
    PUT_BACK.with_borrow_mut(|reports| reports.push_back((tid, stop)));
}

/// Waits for a report of any tracee or child of the calling thread.
///
/// Children of other threads in this process are ignored (`__WNOTHREAD`).
pub(crate) fn wait_any() -> Result<WaitResult> {
    wait(0)
}

/// Waits as [`wait_any`] does, until `deadline`.
pub(crate) fn wait_within(deadline: Instant) -> Result<WaitResult> {
    const PAUSE: Duration = Duration::from_micros(100);
    loop {
        match wait(libc::WNOHANG)? {
            WaitResult::Interrupted if Instant::now() < deadline => std::thread::sleep(PAUSE),
            found => return Ok(found),
        }
    }
}

/// Waits for a report of one thread.
pub(crate) fn wait_for(tid: RawTid) -> Result<Stop> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
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

/// Returns the message of a ptrace event: for a clone event, the id of the new thread.
pub(crate) fn event_message(tid: RawTid) -> Result<u64> {
    let mut message = [0u64];
    request(
        "read the event message of",
        libc::PTRACE_GETEVENTMSG,
        tid,
        0,
        message.as_mut_ptr() as usize,
    )?;
    Ok(message.first().copied().unwrap_or(0))
}

/// Changes the siginfo of a signal-delivery-stop.
pub(crate) fn set_siginfo(tid: RawTid, info: &SigInfo) -> Result<()> {
    request(
        "set the siginfo of",
        libc::PTRACE_SETSIGINFO,
        tid,
        0,
        info.0.as_ptr() as usize,
    )
    .map(drop)
}

fn wait(flags: c_int) -> Result<WaitResult> {
    if let Some((tid, stop)) = PUT_BACK.with_borrow_mut(VecDeque::pop_front) {
        return Ok(WaitResult::Report(tid, stop));
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD | flags) };
    if tid >= 0 {
        return Ok(if tid == 0 {
            WaitResult::Interrupted
        } else {
            WaitResult::Report(tid, Stop::of(status))
        });
    }
    let source = io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::EINTR) => Ok(WaitResult::Interrupted),
        Some(libc::ECHILD) => Ok(WaitResult::NoTracees),
        _ => Err(Error::System {
            action: "wait for the program",
            source,
        }),
    }
}

/// Sends a signal to a thread.
pub(crate) fn send(pid: RawTid, tid: RawTid, signal: i32) {
    // SAFETY: tgkill(2) does not access our memory.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
}

/// Kills a process.
pub(crate) fn kill(pid: RawTid) {
    signal(pid, libc::SIGKILL);
}

/// Sends a signal to a process, if it still exists.
pub(crate) fn signal(pid: RawTid, signal: i32) {
    // SAFETY: kill(2) does not access our memory.
    unsafe { libc::kill(pid, signal) };
}

/// A set of processors.
pub(crate) type CpuSet = libc::cpu_set_t;

/// Returns the processors that a thread may run on; 0 names the calling thread.
pub(crate) fn affinity(tid: RawTid) -> Option<CpuSet> {
    // SAFETY: an all-zero set is valid (empty), and the kernel writes at most its size.
    unsafe {
        let mut set: CpuSet = std::mem::zeroed();
        (libc::sched_getaffinity(tid, size_of::<CpuSet>(), &raw mut set) == 0).then_some(set)
    }
}

/// Sets the processors that a thread may run on; 0 names the calling thread. A failure only makes
/// stepping slower.
pub(crate) fn set_affinity(tid: RawTid, set: &CpuSet) {
    // SAFETY: the kernel only reads the set.
    unsafe { libc::sched_setaffinity(tid, size_of::<CpuSet>(), ptr::from_ref(set)) };
}

/// Returns the processors of `all` that are not in `some`, or `None` if none is left.
pub(crate) fn without(all: &CpuSet, some: &CpuSet) -> Option<CpuSet> {
    // SAFETY: an all-zero set is valid (empty), and the index stays below the size of the sets.
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

/// Returns the processor that the calling thread runs on, as a set.
pub(crate) fn current_cpu() -> Option<CpuSet> {
    // SAFETY: an all-zero set is valid (empty), and `CPU_SET` checks its index.
    unsafe {
        let cpu = usize::try_from(libc::sched_getcpu()).ok()?;
        let mut set: CpuSet = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        Some(set)
    }
}
