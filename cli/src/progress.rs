//! A progress bar on a terminal, after the first half second; nothing anywhere else.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long work may take before it shows a bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// For pieces of long work one after the other: shown while one takes long, gone when it is done.
pub struct Bar {
    what: &'static str,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    /// When the piece began that is going on.
    since: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A bar that will say `what` is being done.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            shown: Mutex::default(),
        }
    }

    /// `done` of `total` (0: not known).
    pub fn update(&self, done: u64, total: u64) {
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
            bar.set_message(self.what);
            bar
        });
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
