//! A progress bar on a terminal, after the first half second; nothing anywhere else.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long work may take before it shows a bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// One piece of long work; the bar goes away when this is dropped.
pub struct Bar {
    what: &'static str,
    since: Instant,
    shown: Mutex<Option<ProgressBar>>,
}

impl Bar {
    /// A bar that will say `what` is being done.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            since: Instant::now(),
            shown: Mutex::new(None),
        }
    }

    /// `done` of `total` (0: not known).
    pub fn update(&self, done: u64, total: u64) {
        if self.since.elapsed() < PATIENCE {
            return;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = shown.get_or_insert_with(|| {
            // indicatif draws nothing when stderr is no terminal.
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let style = "{msg} [{bar:30}] {percent}% {eta}";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
            bar.set_message(self.what);
            bar
        });
        bar.set_length(total.max(done));
        bar.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let shown = self.shown.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = shown.take() {
            bar.finish_and_clear();
        }
    }
}
