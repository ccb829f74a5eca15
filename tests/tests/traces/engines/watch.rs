//! Reports the case that hangs, because a hang cannot be interrupted from inside.

use crate::engines::trials::Case;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope, ThreadId};
use std::time::{Duration, Instant};

/// The time limit of a case, including its reduction after a failure.
const PATIENCE: Duration = Duration::from_secs(90);

/// The running cases.
#[derive(Debug, Default)]
pub struct Watch {
    cases: Mutex<HashMap<ThreadId, (Case, Instant)>>,
    over: AtomicBool,
}

impl Watch {
    /// Registers the case that this thread runs now.
    pub fn begin(&self, case: Case) {
        self.cases()
            .insert(thread::current().id(), (case, Instant::now()));
    }

    /// Removes the case of this thread.
    pub fn end(&self) {
        self.cases().remove(&thread::current().id());
    }

    /// Watches until [`Self::finish`], and ends the process when a case takes too long.
    pub fn run<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        scope.spawn(|| {
            while !self.over.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(50));
                let stuck = |&&(_, since): &&(Case, Instant)| since.elapsed() > PATIENCE;
                if let Some((case, _)) = self.cases().values().find(stuck) {
                    eprintln!("BACKTRAIL_CASE={case} takes longer than {PATIENCE:?}");
                    std::process::exit(101);
                }
            }
        });
    }

    pub fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn cases(&self) -> MutexGuard<'_, HashMap<ThreadId, (Case, Instant)>> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
