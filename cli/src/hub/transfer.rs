//! Requests to a hub on a thread of their own, so that Ctrl-C ends them even if the hub hangs.

use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Bar;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The interval between two checks of Ctrl-C and the progress.
const PERIOD: Duration = Duration::from_millis(50);

/// The progress of a request, which its thread updates.
#[derive(Clone, Debug, Default)]
pub struct TransferProgress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    done: AtomicU64,
    total: AtomicU64,
    canceled: AtomicBool,
}

impl TransferProgress {
    /// Stores the progress, and returns whether the work is to go on.
    pub fn update(&self, done: u64, total: u64) -> ControlFlow<()> {
        self.0.done.store(done, Ordering::Relaxed);
        self.0.total.store(total, Ordering::Relaxed);
        match self.0.canceled.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Runs `request` on a thread, and shows its progress as `work`. Ctrl-C leaves the thread alone and
/// returns at once.
pub fn run<T: Send + 'static>(
    interrupt: &Interrupt,
    work: &'static str,
    request: impl FnOnce(&TransferProgress) -> Result<T, backtrail_report::client::Error> + Send + 'static,
) -> Result<T, Failure> {
    let progress = TransferProgress::default();
    let (sender, receiver) = channel();
    let shared = progress.clone();
    std::thread::spawn(move || {
        let _ = sender.send(request(&shared));
    });
    let bar = Bar::default();
    loop {
        if interrupt.flag().load(Ordering::Relaxed) {
            progress.0.canceled.store(true, Ordering::Relaxed);
            return Err(Failure::canceled("canceled"));
        }
        match receiver.recv_timeout(PERIOD) {
            Ok(result) => return Ok(result?),
            Err(RecvTimeoutError::Timeout) => {
                let (done, total) = (&progress.0.done, &progress.0.total);
                let total = total.load(Ordering::Relaxed);
                if total != 0 {
                    bar.show(work, done.load(Ordering::Relaxed), total);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::failed("the request to the hub ended without a result"));
            }
        }
    }
}
