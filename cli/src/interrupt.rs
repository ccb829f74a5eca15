//! Ctrl-C cancels long work; a second one ends the program.

use backtrail_bundle::CancelToken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{SigId, flag, low_level};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Once};

/// SIGHUP means that the terminal was closed. It is left ignored if nohup(1) did that.
static SIGNALS: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
    all.filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP))
        .collect()
});

/// Returns whether a signal was ignored when this program started (proc_pid_status(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Turns exceeding the file size limit into a write error, instead of ending the program.
pub fn outlive_file_limits() {
    // If this fails, the default action remains.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// The last signal received; 0 if there was none.
static LAST_SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Returns the exit status that shells report for a signal.
const fn status_of(signal: i32) -> i32 {
    128 + signal
}

/// Returns the exit status if a signal was received.
pub fn status() -> Option<u8> {
    let signal = LAST_SIGNAL.load(Ordering::Relaxed);
    let signal = i32::try_from(signal).ok().filter(|&signal| signal != 0)?;
    u8::try_from(status_of(signal)).ok()
}

/// Catches Ctrl-C (SIGINT) and SIGTERM until it is dropped.
///
/// The first signal sets the flag that long work checks. A second one ends the program. After the
/// drop, the first one does.
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Installs the signal handlers.
    pub fn install() -> Self {
        let raised = Arc::new(AtomicBool::new(false));
        let mut registered = Vec::new();
        for &signal in &*SIGNALS {
            // The order matters: the shutdown handler must read the flag before it is set. If this
            // fails, Ctrl-C ends the program at once, which is acceptable.
            registered.extend(flag::register_conditional_shutdown(
                signal,
                status_of(signal),
                Arc::clone(&raised),
            ));
            registered.extend(flag::register_usize(
                signal,
                Arc::clone(&LAST_SIGNAL),
                signal as usize,
            ));
            registered.extend(flag::register(signal, Arc::clone(&raised)));
        }
        Self {
            flag: raised,
            registered,
        }
    }

    /// Leaves Ctrl-C to the next handler.
    pub fn release(mut self) {
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

    /// Returns the flag as a token for work on bundles.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken::new(Arc::clone(&self.flag))
    }

    /// Returns the flag for a thread that outlives the caller.
    #[cfg(all(feature = "profiler", feature = "hub"))]
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Returns the flag; `true` means cancel.
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

/// Makes these signals end the program and remove what it has unpacked. Without a handler they
/// would be lost, because the previous handlers are not restored.
fn end_at_once(signals: &[i32]) {
    static WAITS: Once = Once::new();
    let signals = signals.to_vec();
    WAITS.call_once(|| {
        // If this fails, the signals are lost, which is acceptable.
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
