//! Quantiles of measured times.

use std::time::Duration;

/// Times of equal work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds a time.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Returns the number of times.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the smallest time that at least this share of all does not exceed, in milliseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * share).ceil() as usize;
        let time = sorted.get(at.saturating_sub(1)).copied();
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    }

    /// Returns the columns p50, p99 and max of a table.
    pub fn columns(&self) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.quantile(share));
        format!("{p50:.1} | {p99:.1} | {max:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let mut times = Times::default();
        for milliseconds in (1..=100).rev() {
            times.push(Duration::from_millis(milliseconds));
        }
        assert_eq!(times.columns(), "50.0 | 99.0 | 100.0");
        assert!(Times::default().quantile(0.5).is_nan());
    }
}
