//! Wakes the thread that waits for tracees: `waitpid` has no time limit of its own.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// A thread that waits, and can be woken from any other.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    tid: AtomicI32,
}

impl Waker {
    /// Makes the calling thread the one to wake.
    pub(crate) fn adopt_current(&self) {
        // SAFETY: gettid touches no memory.
        self.tid.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// Nobody is to be woken any more: the thread's id may soon be another's.
    pub(crate) fn release(&self) {
        self.tid.store(0, Ordering::Release);
    }

    /// Interrupts the thread's wait. One that is just about to wait is missed: call again until it acts.
    pub(crate) fn wake(&self) {
        install_handler();
        let tid = self.tid.load(Ordering::Acquire);
        if tid != 0 {
            // SAFETY: tgkill touches no memory; the signal's handler does nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) };
        }
    }
}

/// A real-time signal that nobody is likely to use.
fn signal() -> i32 {
    libc::SIGRTMAX() - 5
}

/// Handles the signal by doing nothing, which is enough to interrupt a wait; once for the process.
fn install_handler() {
    extern "C" fn nothing(_: libc::c_int) {}
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the action is wholly initialized: zero flags (no SA_RESTART), empty mask, a handler
        // that is safe in any context.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal(), &raw const action, std::ptr::null_mut());
        }
    });
}
