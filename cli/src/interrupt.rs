//! Ctrl-C: asks long work to stop; a second one ends the program.

use backtrail_bundle::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Which of them came last; 0: none did.
static CAME: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The status of a program that a signal ended, as shells give it.
const fn status_of(signal: i32) -> i32 {
    128 + signal
}

/// The status to end with, when one of them has come.
pub fn status() -> Option<u8> {
    let signal = CAME.load(Ordering::Relaxed);
    let signal = i32::try_from(signal).ok().filter(|&signal| signal != 0)?;
    u8::try_from(status_of(signal)).ok()
}

/// Catches Ctrl-C (SIGINT) and SIGTERM for as long as it lives.
///
/// The first one raises the flag, which long work looks at; one more while it stands ends the program. When nobody looks any
/// more, because it was dropped, the first one does.
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Catches them from now on.
    pub fn install() -> Self {
        let raised = Arc::new(AtomicBool::new(false));
        let mut registered = Vec::new();
        for signal in SIGNALS {
            // The order counts: the shutdown looks at the flag before it is raised. Without a
            // handler Ctrl-C ends the program at once, which is bearable.
            registered.extend(flag::register_conditional_shutdown(
                signal,
                status_of(signal),
                Arc::clone(&raised),
            ));
            registered.extend(flag::register_usize(signal, Arc::clone(&CAME), signal as usize));
            registered.extend(flag::register(signal, Arc::clone(&raised)));
        }
        Self {
            flag: raised,
            registered,
        }
    }

    /// Leaves Ctrl-C to whoever catches it next.
    pub fn hand_over(mut self) {
        self.unregister();
        end_at_once(SIGTERM);
        std::mem::forget(self);
    }

    fn unregister(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }

    /// The same, for work on bundles.
    pub fn stop(&self) -> Stop {
        Stop::new(Arc::clone(&self.flag))
    }

    /// The flag: `true` means stop.
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.unregister();
        SIGNALS.into_iter().for_each(end_at_once);
    }
}

/// The signal ends the program from now on. Without a handler of ours it would be lost: what was there before does not come
/// back.
fn end_at_once(signal: i32) {
    // That it cannot be caught is bearable.
    let _ = flag::register_conditional_shutdown(signal, status_of(signal), Arc::new(AtomicBool::new(true)));
}
