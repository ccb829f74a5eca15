//! The threads that matter run at once, and from memory that is there.

use backtrail_pt::Tid;
use std::io;

/// Gives a thread (0: the calling one) a real-time priority (`SCHED_FIFO`, sched(7)): 1 to 99; 0 leaves it as it is.
///
/// # Errors
/// When the kernel does not allow it: `CAP_SYS_NICE`, or a container without real-time time.
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

/// Keeps in memory what the process uses, as it comes to use it (`MCL_ONFAULT`).
///
/// # Errors
/// When the kernel does not allow it: `CAP_IPC_LOCK` or `RLIMIT_MEMLOCK`.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: it takes no address.
    let done = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
