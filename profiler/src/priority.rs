//! The real-time priority of the thread that reads the rings.

use std::io;
use std::time::Duration;

/// The priority (sched(7)): above all threads without one, below all others with one.
const PRIORITY: i32 = 1;
/// The longest rest of a thread that has the priority.
const MAX_REST: Duration = Duration::from_millis(20);

/// Gives the calling thread real-time priority (`SCHED_RR`). Threads that it starts have none.
///
/// # Errors
///
/// The reason of the kernel: `CAP_SYS_NICE` is missing, or a control group has no real-time budget.
pub(crate) fn raise() -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: `parameters` lives through the call. Thread 0 is the calling one.
    let result = unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_RR | libc::SCHED_RESET_ON_FORK,
            &raw const parameters,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Tries the priority on a thread that ends at once.
///
/// # Errors
///
/// As for [`raise`].
pub(crate) fn check() -> io::Result<()> {
    let thread = std::thread::Builder::new().spawn(raise)?;
    let stopped = |_| Err(io::Error::other("the thread that tried it stopped"));
    thread.join().unwrap_or_else(stopped)
}

/// Returns the rest after some work, so that a thread with the priority takes at most about half of
/// a processor. Nothing else interrupts it.
pub(crate) fn rest_after(work: Duration) -> Duration {
    work.min(MAX_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the scheduling policy of the calling thread.
    fn policy() -> i32 {
        // SAFETY: the call takes no address.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn priority_is_of_the_calling_thread_only() {
        let raised = std::thread::spawn(|| {
            let result = raise();
            let child = std::thread::spawn(policy).join().unwrap();
            (result, policy() & !libc::SCHED_RESET_ON_FORK, child)
        });
        let (result, own, child) = raised.join().unwrap();
        match result {
            Ok(()) => assert_eq!(own, libc::SCHED_RR),
            Err(error) => assert_eq!(
                (own, error.raw_os_error()),
                (libc::SCHED_OTHER, Some(libc::EPERM))
            ),
        }
        assert_eq!((child, policy()), (libc::SCHED_OTHER, libc::SCHED_OTHER));
        assert_eq!(check().is_ok(), own == libc::SCHED_RR);
    }

    #[test]
    fn rest_is_bounded() {
        let millis = Duration::from_millis;
        assert_eq!(rest_after(millis(3)), millis(3));
        assert_eq!(rest_after(millis(900)), MAX_REST);
    }
}
