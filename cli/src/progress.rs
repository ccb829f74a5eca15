//! A progress bar on a terminal, after a fifth of a second; nothing anywhere else.

use backtrail_decoder::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long work may take before it shows a bar.
const PATIENCE: Duration = Duration::from_millis(200);

/// For pieces of long work one after the other: shown while one takes long, gone when it is done.
#[derive(Default)]
pub struct Bar {
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    /// When the piece began that is going on.
    since: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Shows how far the work is.
    pub fn update(&self, progress: Progress) {
        let Progress { stage, done, total } = progress;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if total != 0 && done >= total {
            shown.clear();
            return;
        }
        if shown.since.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return;
        }
        let bar = shown.bar.get_or_insert_with(|| {
            // indicatif draws nothing when stderr is no terminal.
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let style = "{msg} [{bar:30}] {percent}% {eta}";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
            bar
        });
        bar.set_message(stage.describe());
        bar.set_length(total.max(done));
        bar.set_position(done);
    }
}

impl Shown {
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
