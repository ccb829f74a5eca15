//! How many bundles an executable may cause: a bucket of tokens each.

use crate::config::Limit;
use std::collections::HashMap;
use std::time::Instant;

/// Executables that are remembered. The one that was seen longest ago is forgotten for a new one.
const REMEMBERED: usize = 1024;

/// The buckets.
#[derive(Debug)]
pub struct Limiter {
    limit: Limit,
    buckets: HashMap<String, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Limiter {
    /// Full buckets.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            buckets: HashMap::new(),
        }
    }

    /// Other limits from now on.
    pub fn set(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Whether an executable may cause one more now.
    pub fn admits(&mut self, executable: &str, now: Instant) -> bool {
        let burst = f64::from(self.limit.burst);
        if !self.buckets.contains_key(executable) && self.buckets.len() >= REMEMBERED {
            let oldest = self.buckets.iter().min_by_key(|(_, bucket)| bucket.filled);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                self.buckets.remove(&name);
            }
        }
        let bucket = self.buckets.entry(executable.to_owned()).or_insert(Bucket {
            tokens: burst,
            filled: now,
        });
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * self.limit.per_second).min(burst);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_storm_is_cut_and_others_are_not() {
        let mut limiter = Limiter::new(Limit {
            burst: 3,
            per_second: 2.0,
        });
        let start = Instant::now();
        let admitted = (0..1000u64)
            .filter(|ms| limiter.admits("/bin/storm", start + Duration::from_millis(*ms)))
            .count();
        assert_eq!(
            admitted, 4,
            "three at once, one more within a second (two from its very end on)"
        );
        assert!(limiter.admits("/bin/other", start));
        assert!(limiter.admits("/bin/storm", start + Duration::from_secs(60)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut limiter = Limiter::new(Limit::default());
        let now = Instant::now();
        for number in 0..10 * REMEMBERED {
            assert!(limiter.admits(&number.to_string(), now));
        }
        assert!(limiter.buckets.len() <= REMEMBERED);
    }
}
