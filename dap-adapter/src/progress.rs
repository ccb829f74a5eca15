//! Progress reports of long work: started after a delay, updated periodically, ended.

use crate::outbox::Outbox;
use crate::pending::{Cancel, Pending};
use crate::protocol::types::{ProgressEndEventBody, ProgressStartEventBody, ProgressUpdateEventBody};
use backtrail_decoder::{Progress, Watch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shorter work is not reported.
const PATIENCE: Duration = Duration::from_millis(400);
/// Between two updates.
const PERIOD: Duration = Duration::from_millis(150);

/// Every progress has a number of its own.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Reports the progress of the work for a request.
pub struct ProgressReporter {
    outbox: Outbox,
    pending: Arc<Pending>,
    cancel: Cancel,
    /// The client wants to hear of it.
    wanted: bool,
    state: Mutex<ProgressState>,
}

struct ProgressState {
    since: Instant,
    shown: Option<ShownProgress>,
}

struct ShownProgress {
    id: String,
    at: Instant,
    message: String,
}

impl ProgressReporter {
    /// Returns a reporter of work that begins now.
    #[must_use]
    pub fn new(outbox: Outbox, pending: Arc<Pending>, cancel: Cancel, wanted: bool) -> Self {
        Self {
            outbox,
            pending,
            cancel,
            wanted,
            state: Mutex::new(ProgressState {
                since: Instant::now(),
                shown: None,
            }),
        }
    }

    /// Work of the debugger is so far.
    pub fn report(&self, progress: Progress) {
        self.show(progress.stage.describe(), Some((progress.done, progress.total)));
    }

    /// Does work, watched.
    pub fn watch<T>(&self, work: impl FnOnce(&Watch<'_>) -> T) -> T {
        let progress = |progress: Progress| self.report(progress);
        work(&Watch {
            cancel: &self.cancel,
            progress: &progress,
        })
    }

    /// Shows the current work, and the completed part of the total.
    pub fn show(&self, what: &str, of: Option<(u64, u64)>) {
        if !self.wanted {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let percentage = of
            .filter(|(_, total)| *total > 0)
            .map(|(done, total)| (u128::from(done.min(total)) * 100 / u128::from(total)) as f64);
        let is_long = state.since.elapsed() >= PATIENCE;
        match &mut state.shown {
            None if !is_long => {}
            None => {
                let id = format!("backtrail-{}", LAST.fetch_add(1, Ordering::Relaxed));
                self.pending.shows(&self.cancel, &id);
                self.outbox.event(
                    "progressStart",
                    ProgressStartEventBody {
                        progress_id: id.clone(),
                        title: "Backtrail".to_owned(),
                        message: Some(what.to_owned()),
                        cancellable: Some(true),
                        percentage,
                        ..ProgressStartEventBody::default()
                    },
                );
                state.shown = Some(ShownProgress {
                    id,
                    at: Instant::now(),
                    message: what.to_owned(),
                });
            }
            Some(shown) if shown.at.elapsed() >= PERIOD || shown.message != what => {
                shown.at = Instant::now();
                what.clone_into(&mut shown.message);
                self.outbox.event(
                    "progressUpdate",
                    ProgressUpdateEventBody {
                        progress_id: shown.id.clone(),
                        message: Some(what.to_owned()),
                        percentage,
                    },
                );
            }
            Some(_) => {}
        }
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(shown) = state.shown.take() {
            self.outbox.event(
                "progressEnd",
                ProgressEndEventBody {
                    progress_id: shown.id,
                    message: None,
                },
            );
        }
    }
}
