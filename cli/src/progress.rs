//! A progress bar on a terminal, shown after a fifth of a second.

use backtrail_decoder::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after which work shows a bar.
const SHOW_AFTER: Duration = Duration::from_millis(200);

/// The progress bar of successive pieces of work. It is shown while one takes long, and then
/// removed.
#[derive(Default)]
pub struct Bar {
    shown: Mutex<BarState>,
}

#[derive(Default)]
struct BarState {
    /// The start of the current piece of work.
    since: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Shows the progress of the work.
    pub fn update(&self, progress: Progress) {
        let Progress { stage, done, total } = progress;
        self.show(stage.describe(), done, total);
    }

    /// Shows that `done` of `total` bytes or items of a piece of work are done.
    pub fn show(&self, work: &'static str, done: u64, total: u64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if total != 0 && done >= total {
            shown.clear();
            return;
        }
        if shown.since.get_or_insert_with(Instant::now).elapsed() < SHOW_AFTER {
            return;
        }
        let bar = shown.bar.get_or_insert_with(|| {
            // indicatif draws nothing if stderr is not a terminal.
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let style = "{msg} [{bar:30}] {percent}% {eta}";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
            bar
        });
        bar.set_message(work);
        bar.set_length(total.max(done));
        bar.set_position(done);
    }
}

impl BarState {
    fn clear(&mut self) {
        self.since = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let shown = self.shown.get_mut().unwrap_or_else(PoisonError::into_inner);
        shown.clear();
    }
}
