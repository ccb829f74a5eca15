//! Ctrl-C: asks long work to stop; a second one ends the program.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The status of a program that Ctrl-C ended, as shells give it.
const STATUS: i32 = 130;

/// Catches Ctrl-C (SIGINT) and SIGTERM for as long as it lives.
///
/// The first one raises the flag, which long work looks at; one more while it stands ends the program.
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Catches them from now on.
    pub fn install() -> Self {
        let raised = Arc::new(AtomicBool::new(false));
        let mut registered = Vec::new();
        for signal in [SIGINT, SIGTERM] {
            // The order counts: the shutdown looks at the flag before it is raised. Without a
            // handler Ctrl-C ends the program at once, which is bearable.
            registered.extend(flag::register_conditional_shutdown(
                signal,
                STATUS,
                Arc::clone(&raised),
            ));
            registered.extend(flag::register(signal, Arc::clone(&raised)));
        }
        Self {
            flag: raised,
            registered,
        }
    }

    /// The flag: `true` means stop.
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}
