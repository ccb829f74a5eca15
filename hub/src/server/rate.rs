//! Limits of requests per token.

use crate::error::{Error, Result};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Senders that are remembered. Beyond, full buckets are forgotten, which changes nothing.
const SENDERS: usize = 10_000;
/// Seconds of requests that a sender may save up.
const BURST: f64 = 5.0;

/// One bucket of requests per sender.
#[derive(Debug)]
pub struct Rates {
    per_second: f64,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Rates {
    /// Allows each sender this number of requests a second.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second.max(1)),
            buckets: Mutex::new(HashMap::new()),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// Fails if the sender's bucket is empty.
    pub fn count(&self, sender: &str) -> Result<()> {
        self.count_at(sender, Instant::now())
    }

    fn count_at(&self, sender: &str, now: Instant) -> Result<()> {
        let full = self.per_second * BURST;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let level = |&(level, since): &(f64, Instant)| {
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            full.min(level + seconds * self.per_second)
        };
        if buckets.len() >= SENDERS && !buckets.contains_key(sender) {
            buckets.retain(|_, bucket| level(bucket) < full);
        }
        let bucket = buckets.entry(sender.to_owned()).or_insert((full, now));
        *bucket = (level(bucket), now);
        if bucket.0 < 1.0 {
            let seconds = (1.0 - bucket.0) / self.per_second;
            return Err(Error::TooMany {
                seconds: seconds.ceil() as u64,
            });
        }
        bucket.0 -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_ends_and_time_refills() {
        let rates = Rates::new(2);
        let start = Instant::now();
        for _ in 0..10 {
            assert!(rates.count_at("a", start).is_ok());
        }
        assert!(matches!(
            rates.count_at("a", start),
            Err(Error::TooMany { seconds: 1 })
        ));
        assert!(rates.count_at("b", start).is_ok());
        let later = start + Duration::from_millis(600);
        assert!(rates.count_at("a", later).is_ok());
        assert!(rates.count_at("a", later).is_err());
    }
}
