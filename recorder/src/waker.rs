//! Wakes the thread that waits for tracees, because `waitpid` has no timeout.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// A waiting thread that other threads can wake.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    tid: AtomicI32,
}

impl Waker {
    /// Makes the calling thread the one to wake.
    pub(crate) fn set_current(&self) {
        // The function `gettid` is missing in glibc before 2.30.
        // SAFETY: the system call does not access memory.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        self.tid.store(tid, Ordering::Release);
    }

    /// Stops waking the thread: its id may be reused.
    pub(crate) fn release(&self) {
        self.tid.store(0, Ordering::Release);
    }

    /// Interrupts the wait of the thread. A thread that is about to wait misses the signal, so call
    /// this until it reacts.
    pub(crate) fn wake(&self) {
        install_handler();
        let tid = self.tid.load(Ordering::Acquire);
        if tid != 0 {
            // SAFETY: tgkill does not access memory, and the handler of the signal does nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) };
        }
    }
}

/// Returns a real-time signal that is unlikely to be in use.
fn signal() -> i32 {
    libc::SIGRTMAX() - 5
}

/// Installs an empty handler for the signal, once per process. That is enough to interrupt a wait.
fn install_handler() {
    extern "C" fn nothing(_: libc::c_int) {}
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the action is fully initialized: no flags (no SA_RESTART), an empty mask, and a
        // handler that is safe in any context.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal(), &raw const action, std::ptr::null_mut());
        }
    });
}
