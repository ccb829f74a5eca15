//! The unanswered requests, and their cancellation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A flag that cancels work.
pub type Cancel = Arc<AtomicBool>;

/// The requests that wait or run.
#[derive(Debug, Default)]
pub struct Pending(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    seq: i64,
    /// Whether the request is being handled.
    runs: bool,
    /// The id of its progress, while that is shown.
    progress: Option<String>,
    cancel: Cancel,
}

impl Pending {
    /// Takes note of a request.
    pub fn add(&self, seq: i64) -> Cancel {
        let cancel = Cancel::default();
        self.with(|entries| {
            entries.push(Entry {
                seq,
                runs: false,
                progress: None,
                cancel: Arc::clone(&cancel),
            });
        });
        cancel
    }

    /// Marks the request as being handled.
    pub fn begins(&self, running: &Cancel) {
        self.with(|entries| {
            for entry in entries {
                entry.runs |= Arc::ptr_eq(&entry.cancel, running);
            }
        });
    }

    /// Removes a request after its response and all follow-ups.
    pub fn remove(&self, done: &Cancel) {
        self.with(|entries| entries.retain(|entry| !Arc::ptr_eq(&entry.cancel, done)));
    }

    /// Its progress is shown by this name.
    pub fn shows(&self, running: &Cancel, progress: &str) {
        self.with(|entries| {
            let found = entries
                .iter_mut()
                .find(|entry| Arc::ptr_eq(&entry.cancel, running));
            if let Some(entry) = found {
                entry.progress = Some(progress.to_owned());
            }
        });
    }

    /// Cancels the request of a number; says whether there is one.
    pub fn cancel_request(&self, seq: i64) -> bool {
        self.cancel(|entry| entry.seq == seq)
    }

    /// Cancels what shows a progress; says whether something does.
    pub fn cancel_progress(&self, id: &str) -> bool {
        self.cancel(|entry| entry.progress.as_deref() == Some(id))
    }

    /// Cancels what is being worked at; says whether something is.
    pub fn cancel_running(&self) -> bool {
        self.cancel(|entry| entry.runs)
    }

    /// Cancels all.
    pub fn cancel_all(&self) {
        self.cancel(|_| true);
    }

    fn cancel(&self, wanted: impl Fn(&Entry) -> bool) -> bool {
        self.with(|entries| {
            let mut found = false;
            for entry in entries.iter().filter(|entry| wanted(entry)) {
                entry.cancel.store(true, Ordering::Relaxed);
                found = true;
            }
            found
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_cancelled_by_its_number_or_by_its_progress() {
        let pending = Pending::default();
        let (one, two) = (pending.add(1), pending.add(2));
        pending.shows(&two, "p");
        assert!(pending.cancel_request(1) && !pending.cancel_request(7));
        assert!(one.load(Ordering::Relaxed) && !two.load(Ordering::Relaxed));
        assert!(pending.cancel_progress("p") && !pending.cancel_progress("q"));
        assert!(two.load(Ordering::Relaxed));
        let three = pending.add(3);
        assert!(!pending.cancel_running());
        pending.begins(&three);
        assert!(pending.cancel_running() && three.load(Ordering::Relaxed));
        pending.remove(&one);
        assert!(!pending.cancel_request(1));
    }
}
