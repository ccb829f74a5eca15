//! Keeps the recorder within its processor time by a lower rate of samples.
//!
//! A sample weighs its own period, so that sums do not depend on the rate.

use std::time::Duration;

/// The lowest rate.
const MIN_FREQUENCY: u64 = 1;

/// The rate of samples, and the processor time that the recorder may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    percent: f64,
    cpus: f64,
    wanted: u64,
    frequency: u64,
    lowest: u64,
}

impl Budget {
    /// Returns a budget in percent of all processors, and the wanted rate.
    pub fn new(percent: f64, cpus: usize, frequency: u64) -> Self {
        Self {
            percent,
            cpus: cpus.max(1) as f64,
            wanted: frequency,
            frequency,
            lowest: frequency,
        }
    }

    /// Applies the processor time that the recorder used since the last call. Returns the new rate
    /// if it changes.
    pub fn update(&mut self, used: Duration, elapsed: Duration) -> Option<u64> {
        if elapsed.is_zero() {
            return None;
        }
        let percent = 100.0 * used.as_secs_f64() / (elapsed.as_secs_f64() * self.cpus);
        let frequency = if percent > self.percent {
            let lower = self.frequency as f64 * self.percent / percent;
            (lower as u64).max(self.frequency / 4).max(MIN_FREQUENCY)
        } else if percent < self.percent / 2.0 {
            // Slowly, so that the rate does not swing.
            (self.frequency + self.frequency.div_ceil(8)).min(self.wanted)
        } else {
            self.frequency
        };
        if frequency == self.frequency {
            return None;
        }
        self.frequency = frequency;
        self.lowest = self.lowest.min(frequency);
        Some(frequency)
    }

    /// Returns the lowest rate so far, if it is not the wanted one.
    pub fn lowered_to(&self) -> Option<u64> {
        (self.lowest < self.wanted).then_some(self.lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rate_is_lowered_in_proportion() {
        let mut budget = Budget::new(1.0, 2, 1000);
        // 2 % of one processor is 1 % of two.
        assert_eq!(budget.update(Duration::from_millis(20), SECOND), None);
        assert_eq!(budget.update(Duration::from_millis(40), SECOND), Some(500));
        assert_eq!(budget.update(Duration::from_secs(1), SECOND), Some(125));
        assert_eq!(budget.lowered_to(), Some(125));
    }

    #[test]
    fn rate_rises_to_the_wanted_one() {
        let mut budget = Budget::new(1.0, 1, 99);
        assert_eq!(budget.lowered_to(), None);
        for _ in 0..20 {
            budget.update(SECOND, SECOND);
        }
        assert_eq!(budget.frequency, 1);
        let rates: Vec<_> = (0..60)
            .filter_map(|_| budget.update(Duration::ZERO, SECOND))
            .collect();
        assert!(rates.is_sorted() && rates.last() == Some(&99), "{rates:?}");
        assert_eq!(budget.update(Duration::ZERO, Duration::ZERO), None);
    }
}
