//! Equal intervals of time, which the times of an answer are in.

use std::ops::Range;

/// The intervals of times that have no step, or too many of it.
const BUCKETS: i64 = 120;
/// The length of an interval if there is one time only: a minute.
const DEFAULT_STEP: i64 = 60_000_000;

/// Equal intervals of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeGrid {
    /// The start of the first interval in microseconds since 1970.
    pub start: i64,
    /// The length of an interval in microseconds.
    pub step: i64,
    /// The number of intervals.
    pub count: usize,
    /// Whether each time is the start of an interval.
    pub is_exact: bool,
}

impl TimeGrid {
    /// Builds the intervals of the times that are in a range. The step is the smallest distance of
    /// two times if all times are multiples of it and the intervals are not more than `most`. Else
    /// 120 intervals have all times. `None`: no time is in the range.
    ///
    /// A time belongs to the range if its interval begins or ends in it.
    pub(super) fn within(mut times: Vec<i64>, range: &Range<i64>, most: usize) -> Option<Self> {
        times.sort_unstable();
        times.dedup();
        let step = regular_step(&times);
        let length = step.unwrap_or(1);
        times.retain(|time| time.saturating_add(length) > range.start && *time < range.end);
        let (start, end) = (*times.first()?, *times.last()?);
        let step = step.or_else(|| regular_step(&times));
        let count = |step: i64| usize::try_from((end - start) / step + 1).unwrap_or(usize::MAX);
        let is_one = start == end;
        let exact = step.or(is_one.then_some(DEFAULT_STEP));
        let (step, is_exact) = match exact.filter(|step| count(*step) <= most) {
            Some(step) => (step, true),
            None => ((end - start) / BUCKETS + 1, false),
        };
        Some(Self {
            start,
            step,
            count: count(step),
            is_exact,
        })
    }

    /// Returns the interval of a time. `None`: the time is in no interval.
    pub(super) fn interval(&self, time: i64) -> Option<usize> {
        let distance = time.checked_sub(self.start).filter(|distance| *distance >= 0)?;
        let interval = usize::try_from(distance / self.step.max(1)).ok()?;
        (interval < self.count).then_some(interval)
    }

    /// Returns the length of all intervals in microseconds.
    #[must_use]
    pub fn length(&self) -> i64 {
        self.time(self.count).saturating_sub(self.start)
    }

    /// Returns the start of an interval in microseconds since 1970.
    #[must_use]
    pub fn time(&self, interval: usize) -> i64 {
        let interval = i64::try_from(interval).unwrap_or(i64::MAX);
        self.start.saturating_add(self.step.saturating_mul(interval))
    }
}

/// Returns the smallest distance of two times, if each time is a multiple of it away from the
/// first. The times are in order and differ.
fn regular_step(times: &[i64]) -> Option<i64> {
    let distances = times.iter().zip(times.iter().skip(1));
    let step = distances.map(|(before, after)| after - before).min()?;
    let first = *times.first()?;
    times
        .iter()
        .all(|time| (time - first) % step == 0)
        .then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Range<i64> = i64::MIN..i64::MAX;

    fn grid(times: &[i64], range: &Range<i64>) -> Option<(i64, i64, usize, bool)> {
        let grid = TimeGrid::within(times.to_vec(), range, 2000)?;
        Some((grid.start, grid.step, grid.count, grid.is_exact))
    }

    #[test]
    fn regular_times_are_starts_of_intervals() {
        assert_eq!(grid(&[60, 0, 180, 60], &ALL), Some((0, 60, 4, true)));
        assert_eq!(grid(&[-60, 0], &ALL), Some((-60, 60, 2, true)));
        assert_eq!(grid(&[5], &ALL), Some((5, DEFAULT_STEP, 1, true)));
        assert_eq!(grid(&[], &ALL), None);
    }

    #[test]
    fn irregular_or_many_times_are_in_buckets() {
        assert_eq!(grid(&[0, 7, 1200], &ALL), Some((0, 11, 110, false)));
        let grid = TimeGrid::within((0..10_000).collect(), &ALL, 2000).unwrap();
        assert!(!grid.is_exact && grid.count <= 120, "{grid:?}");
        assert!((0..10_000).all(|time| grid.interval(time).is_some()));
        // The years 0 and 9999.
        let far = [-62_167_219_200_000_000, 7, 253_402_300_799_000_000];
        let grid = TimeGrid::within(far.to_vec(), &ALL, 2000).unwrap();
        assert!(far.iter().all(|time| grid.interval(*time).is_some()), "{grid:?}");
    }

    #[test]
    fn intervals_outside_of_the_range_are_left_out() {
        // The interval at 0 ends in the range.
        assert_eq!(grid(&[0, 60, 120, 180], &(30..120)), Some((0, 60, 2, true)));
        assert_eq!(grid(&[0, 60, 120, 180], &(60..61)), Some((60, 60, 1, true)));
        assert_eq!(grid(&[0, 60], &(200..300)), None);
        let kept = TimeGrid::within(vec![0, 60, 120], &(60..300), 2000).unwrap();
        assert_eq!(
            (kept.interval(0), kept.interval(60), kept.interval(180)),
            (None, Some(0), None)
        );
        assert_eq!(kept.time(1), 120);
    }
}
