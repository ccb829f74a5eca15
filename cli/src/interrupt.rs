//! Ctrl-C: asks long work to stop; a second one ends the program.

use backtrail_bundle::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{SigId, flag, low_level};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Once};

/// SIGHUP: the terminal was closed. Ignored signals stay ignored, as under nohup(1).
static SIGNALS: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
    all.filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP))
        .collect()
});

/// Returns whether the signal was ignored at the start (proc_pid_status(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Makes a write beyond the file size limit fail, in place of ending the program.
pub fn outlive_file_limits() {
    // A failure to catch the signal is harmless.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

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
/// The first signal raises the flag that long work reads. A second one while the flag is raised
/// ends the program. After the flag is dropped, the first signal ends the program.
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Catches them from now on.
    pub fn install() -> Self {
        let raised = Arc::new(AtomicBool::new(false));
        let mut registered = Vec::new();
        for &signal in &*SIGNALS {
            // The order matters: the shutdown reads the flag before it is raised. Without a
            // handler Ctrl-C ends the program at once, which is acceptable.
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

    /// Leaves Ctrl-C to the next handler.
    pub fn hand_over(mut self) {
        self.unregister();
        let others = SIGNALS.iter().copied().filter(|signal| *signal != SIGINT);
        end_at_once(&others.collect::<Vec<_>>());
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
        end_at_once(&SIGNALS);
    }
}

/// Makes these signals end the program after its unpacked files are removed.
///
/// The previous handlers are not restored, so without this handler the signals would be lost.
fn end_at_once(signals: &[i32]) {
    static WAITS: Once = Once::new();
    let signals = signals.to_vec();
    WAITS.call_once(|| {
        // That they cannot be caught is bearable.
        let Ok(mut coming) = Signals::new(signals) else {
            return;
        };
        let wait = move || {
            if let Some(signal) = coming.forever().next() {
                backtrail_bundle::remove_unpacked();
                std::process::exit(status_of(signal));
            }
        };
        let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    });
}
