//! A lower rate of samples than that of the timer of the clock.
//!
//! A thread keeps the timer that it inherited, and the kernel reports the first period of a timer
//! even after it was changed. So the timer stays. Of each stretch of time one sample is taken, at a
//! random place, so that programs in step with the timer are not preferred. The sample weighs the
//! stretch, so that sums stay right. `bpf/src/thinning.h` is the same for stacks that an eBPF
//! program walks.

use std::sync::{Mutex, PoisonError};

/// The most changes that are kept. The rate changes about once a second, and samples are processed
/// sooner than that.
const MAX_CHANGES: usize = 64;

/// The wanted periods over time.
#[derive(Debug, Default)]
pub(crate) struct WantedPeriods {
    /// The times from which on the periods are wanted, in order.
    changes: Mutex<Vec<(u64, u64)>>,
}

impl WantedPeriods {
    /// Sets the period that is wanted from a time on.
    pub fn set(&self, time: u64, period: u64) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() >= MAX_CHANGES {
            changes.remove(0);
        }
        changes.push((time, period));
    }

    /// Returns the period that is wanted at a time. 0: that of the timer.
    pub fn at(&self, time: u64) -> u64 {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = changes.partition_point(|(since, _)| *since <= time);
        let change = before.checked_sub(1).and_then(|index| changes.get(index));
        change.map_or(0, |(_, period)| *period)
    }
}

/// The current stretch of an event on a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// 0: none has begun.
    length: u64,
    done: u64,
    /// The place of the sample that is taken.
    pick: u64,
    random: u64,
}

impl Stretch {
    /// Returns the stretch of the event and processor with this number.
    pub fn new(number: u64) -> Self {
        Self {
            length: 0,
            done: 0,
            pick: 0,
            random: number.wrapping_mul(2).wrapping_add(1),
        }
    }

    /// Returns the weight of the next sample, whose timer has a period, or `None` if it is not
    /// taken. `wanted` is the wanted period.
    pub fn weight(&mut self, period: u64, wanted: u64) -> Option<u64> {
        if self.length == 0 {
            if wanted <= period {
                return Some(period);
            }
            self.done = 0;
            self.begin(wanted);
        }
        let end = self.done.saturating_add(period);
        let mut weight = 0;
        if (self.done..end).contains(&self.pick) {
            weight = self.length;
        }
        self.done = end;
        if let Some(rest) = end.checked_sub(self.length) {
            // The rest of the period is the start of the next stretch, or counts whole.
            if wanted <= period {
                self.length = 0;
                return Some(weight + rest).filter(|weight| *weight > 0);
            }
            self.begin(wanted);
            self.done = rest;
            if self.pick < rest {
                weight += self.length;
            }
        }
        Some(weight).filter(|weight| *weight > 0)
    }

    fn begin(&mut self, length: u64) {
        // Knuth's MMIX generator, whose upper half is the better one.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let place = (u128::from(self.random) * u128::from(length)) >> 64;
        (self.length, self.pick) = (length, u64::try_from(place).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn one_sample_of_each_stretch_weighs_it() {
        let mut stretch = Stretch::new(7);
        let weights: Vec<_> = (0..10_000)
            .filter_map(|_| stretch.weight(MILLISECOND, 16 * MILLISECOND))
            .collect();
        assert_eq!(weights.len(), 10_000 / 16);
        assert!(weights.iter().all(|weight| *weight == 16 * MILLISECOND));
    }

    #[test]
    fn sums_stay_right_while_the_rate_changes() {
        let mut stretch = Stretch::new(1);
        let (mut sum, mut taken) = (0, 0);
        for index in 0..100_000_u64 {
            let wanted = [1, 3, 10, 1000, 77, 2, 0][(index / 777 % 7) as usize] * MILLISECOND;
            let weight = stretch.weight(MILLISECOND, wanted);
            sum += weight.unwrap_or(0);
            taken += u64::from(weight.is_some());
        }
        let error = sum.abs_diff(100_000 * MILLISECOND);
        assert!(error <= 1000 * MILLISECOND, "{error}");
        assert!(taken < 60_000, "{taken}");
    }

    /// Two threads that alternate with the timer each get half of the weight.
    #[test]
    fn programs_in_step_are_not_preferred() {
        let mut stretch = Stretch::new(3);
        let mut sums = [0, 0];
        for index in 0..40_000 {
            sums[index / 2 % 2] += stretch.weight(MILLISECOND, 4 * MILLISECOND).unwrap_or(0);
        }
        let half = 20_000 * MILLISECOND;
        assert!(sums.iter().all(|sum| sum.abs_diff(half) < half / 20), "{sums:?}");
    }

    #[test]
    fn samples_have_the_period_of_their_time() {
        let periods = WantedPeriods::default();
        assert_eq!(periods.at(5), 0);
        for (time, period) in [(10, 4), (20, 8)] {
            periods.set(time, period);
        }
        assert_eq!([9, 10, 19, 20, 99].map(|time| periods.at(time)), [0, 4, 4, 8, 8]);
        (0..200).for_each(|time| periods.set(100 + time, time));
        assert_eq!(periods.at(u64::MAX), 199);
    }
}
