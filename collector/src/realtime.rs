//! Real-time priority and locked memory for urgent threads.

use backtrail_pt::Tid;
use std::io;

/// Sets a thread's real-time priority (`SCHED_FIFO`, sched(7)), 1 to 99. Thread 0 is the calling
/// one. Priority 0 changes nothing.
///
/// # Errors
/// When the kernel refuses: `CAP_SYS_NICE` is missing, or a container has no real-time budget.
pub fn prioritize(tid: Tid, priority: u8) -> io::Result<()> {
    if priority == 0 {
        return Ok(());
    }
    let parameters = libc::sched_param {
        sched_priority: priority.into(),
    };
    // SAFETY: `parameters` lives through the call.
    let done = unsafe {
        libc::sched_setscheduler(
            tid.0 as libc::pid_t,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const parameters,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Locks the memory of the process as it is used (`MCL_ONFAULT`).
///
/// # Errors
/// When the kernel refuses: `CAP_IPC_LOCK` is missing, or `RLIMIT_MEMLOCK` is too low.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: the call takes no address.
    let done = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
