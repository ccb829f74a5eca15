//! Exponential back-off with jitter, so that the hosts of a fleet do not return all at once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The first pause, and the longest one.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// The pauses after failures in a row.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the pause after one more failure. `wanted`: the hub wants at least this pause.
    pub fn after_failure(&mut self, wanted: Option<Duration>) -> Duration {
        let longest = LONGEST.as_millis() as u64;
        let doubled = FIRST.as_millis() as u64 * (1 << self.failures.min(16));
        let pause = doubled.min(longest);
        self.failures = self.failures.saturating_add(1);
        let jittered = Duration::from_millis(pause / 2 + random() % (pause / 2 + 1));
        jittered.max(wanted.unwrap_or_default())
    }

    /// Forgets the failures after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the number of failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Returns a random number. Hash tables have random keys too.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..12)
            .map(|_| backoff.after_failure(None).as_millis() as u64)
            .collect();
        for (number, pause) in pauses.iter().enumerate() {
            let most = (1000 << number).min(300_000);
            assert!((most / 2..=most).contains(pause), "{number}: {pause}");
        }
        let wanted = Duration::from_secs(900);
        assert_eq!(backoff.after_failure(Some(wanted)), wanted);
        backoff.reset();
        assert!(backoff.after_failure(None) <= FIRST);
    }

    #[test]
    fn pauses_of_hosts_differ() {
        let pauses: std::collections::BTreeSet<_> = (0..50)
            .map(|_| {
                let mut backoff = Backoff { failures: 8 };
                backoff.after_failure(None)
            })
            .collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
