//! Tells which case hangs: that cannot be caught from within.

use crate::engines::trials::Case;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope, ThreadId};
use std::time::{Duration, Instant};

/// The longest a case may take, made smaller when it fails.
const PATIENCE: Duration = Duration::from_secs(90);

/// The cases under way.
#[derive(Debug, Default)]
pub struct Watch {
    cases: Mutex<HashMap<ThreadId, (Case, Instant)>>,
    over: AtomicBool,
}

impl Watch {
    /// This thread tries a case now.
    pub fn begin(&self, case: Case) {
        self.cases()
            .insert(thread::current().id(), (case, Instant::now()));
    }

    /// This thread tries no more.
    pub fn end(&self) {
        self.cases().remove(&thread::current().id());
    }

    /// Watches until [`Self::finish`]; ends the process when a case takes too long.
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
