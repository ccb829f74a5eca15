//! Intervals of time, so that a page has few different times.

use serde::Serialize;

/// The largest number of intervals.
const MAX_INTERVALS: u64 = 1000;

/// Intervals of equal length that have all times of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimeAxis {
    /// Milliseconds since the Unix epoch.
    start: f64,
    /// The length of an interval in nanoseconds.
    width: u64,
    count: u64,
    #[serde(skip)]
    first: u64,
}

impl TimeAxis {
    /// Returns the axis of times in nanoseconds, or `None` if they fit in one interval.
    pub fn new(times: impl Iterator<Item = u64> + Clone) -> Option<Self> {
        let first = times.clone().min()?;
        let span = times.max()? - first;
        let powers = (0..20).map(|power| 10_u64.saturating_pow(power));
        let mut widths = powers.flat_map(|power| [1, 2, 5].map(|digit| power.saturating_mul(digit)));
        let width = widths.find(|width| span / width < MAX_INTERVALS)?;
        let count = span / width + 1;
        (count > 1).then_some(Self {
            start: first as f64 / 1e6,
            width,
            count,
            first,
        })
    }

    /// Returns the interval of a time.
    pub fn interval(&self, time: u64) -> i64 {
        (time.saturating_sub(self.first) / self.width) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_all_times_and_are_few() {
        let cases = [
            (vec![], None),
            (vec![7, 7], None),
            (vec![5, 6], Some((1, 2))),
            (vec![0, 999], Some((1, 1000))),
            (vec![0, 1000], Some((2, 501))),
            (vec![100, 10_000_000_100], Some((20_000_000, 501))),
            (vec![0, u64::MAX], Some((20_000_000_000_000_000, 923))),
        ];
        for (times, expected) in cases {
            let axis = TimeAxis::new(times.iter().copied());
            assert_eq!(axis.map(|axis| (axis.width, axis.count)), expected, "{times:?}");
            for time in times {
                let Some(axis) = axis else { continue };
                assert!((0..axis.count as i64).contains(&axis.interval(time)));
            }
        }
    }
}
