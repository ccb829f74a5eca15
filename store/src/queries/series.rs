//! The query for time series of weights.

use crate::filter::{Column, Filter};
use crate::limits::Coverage;
use crate::query::Query;
use crate::scan::{Accumulate, Fold, Groups, Needs, Scan, SegmentScan, check_memory, scan};
use crate::store::Store;
use crate::{Error, Result};
use backtrail_profile::UnixNanos;
use futures_util::future::BoxFuture;

/// The maximum number of intervals of a series.
const MAX_INTERVALS: u64 = 1 << 22;

/// Sums of weights by interval and group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The start of the first interval.
    pub start: UnixNanos,
    /// The length of an interval in nanoseconds.
    pub step: u64,
    /// The groups, those with the largest sums first.
    pub groups: Vec<SeriesGroup>,
}

/// The sums of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesGroup {
    /// The texts of the columns that the query groups by.
    pub key: Vec<String>,
    /// The sum of weights of each interval.
    pub weights: Vec<i64>,
}

/// The intervals of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intervals {
    pub(super) start: u64,
    pub(super) step: u64,
    pub(super) count: usize,
}

impl Intervals {
    /// Returns the intervals of a filter's time. The first one begins at a multiple of the step.
    pub(super) fn new(filter: &Filter, step: u64) -> Result<Self> {
        if step == 0 {
            return Err(Error::Invalid(
                "the step of a series is 0; give a longer one".into(),
            ));
        }
        let start = filter.time.start.0 / step * step;
        let count = filter.time.end.0.saturating_sub(start).div_ceil(step);
        if count > MAX_INTERVALS {
            let message =
                format!("the series has {count} intervals, more than {MAX_INTERVALS}; lengthen the step");
            return Err(Error::Invalid(message));
        }
        // The count is far below 2^32.
        let count = count as usize;
        Ok(Self { start, step, count })
    }

    /// Returns the intervals that divide a filter's time into equal parts. The last one is shorter
    /// by less than a nanosecond for each part if the time has no such parts.
    fn parts(filter: &Filter, parts: u64) -> Result<Self> {
        if !(1..=MAX_INTERVALS).contains(&parts) {
            let message =
                format!("a series has 1 to {MAX_INTERVALS} parts, not {parts}; change their number");
            return Err(Error::Invalid(message));
        }
        let start = filter.time.start.0;
        let step = filter.time.end.0.saturating_sub(start).div_ceil(parts).max(1);
        // The count is far below 2^32.
        let count = parts as usize;
        Ok(Self { start, step, count })
    }
}

impl Store {
    /// Returns the sums of weights by interval and group. Intervals begin at multiples of the step.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the step is 0 or gives too many intervals, and those of
    /// [`Store::merge`].
    pub async fn series(&self, query: &Query, step: u64, group_by: &[Column]) -> Result<(Series, Coverage)> {
        let intervals = Intervals::new(&query.filter, step)?;
        self.series_of(query, intervals, group_by).await
    }

    /// Returns the sums of weights by group in equal parts of the filter's time.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if there are no parts or too many, and those of [`Store::merge`].
    pub async fn series_of_parts(
        &self,
        query: &Query,
        parts: u64,
        group_by: &[Column],
    ) -> Result<(Series, Coverage)> {
        let intervals = Intervals::parts(&query.filter, parts)?;
        self.series_of(query, intervals, group_by).await
    }

    async fn series_of(
        &self,
        query: &Query,
        intervals: Intervals,
        group_by: &[Column],
    ) -> Result<(Series, Coverage)> {
        let (segments, pruned) = self.segments(query).await?;
        let columns = Scan {
            filter: query.filter.clone(),
            group_by: group_by.to_vec(),
            needs: Needs {
                time: true,
                weight: true,
                stack: false,
            },
        };
        let mut fold = SeriesFold {
            intervals,
            memory: query.limits.memory,
            sums: Groups::new(query.limits.memory),
        };
        let new = move |_: &SegmentScan| IntervalSums::new(intervals);
        let mut coverage = scan(&self.reader, query, columns, segments, new, &mut fold).await?;
        coverage.segments_pruned = pruned;
        let groups = fold.sums.into_iter().map(|(key, sums)| SeriesGroup {
            key: key.iter().map(|text| text.to_string()).collect(),
            weights: sums.weights(),
        });
        let mut groups: Vec<_> = groups.collect();
        let total = |group: &SeriesGroup| {
            group
                .weights
                .iter()
                .fold(0, |sum: i64, one| sum.saturating_add(*one))
        };
        groups.sort_by_cached_key(|group| (std::cmp::Reverse(total(group)), group.key.clone()));
        let series = Series {
            start: UnixNanos(intervals.start),
            step: intervals.step,
            groups,
        };
        Ok((series, coverage))
    }
}

/// The sums of weights by interval. Intervals before the first sum and after the last are absent.
struct IntervalSums {
    intervals: Intervals,
    first: usize,
    sums: Vec<i64>,
}

impl IntervalSums {
    fn new(intervals: Intervals) -> Self {
        Self {
            intervals,
            first: 0,
            sums: Vec::new(),
        }
    }

    /// Returns the sum of an interval, which must be within the series.
    fn at(&mut self, interval: usize) -> Option<&mut i64> {
        if self.sums.is_empty() {
            self.first = interval;
        }
        if interval < self.first {
            let more = self.first - interval;
            self.sums.splice(0..0, std::iter::repeat_n(0, more));
            self.first = interval;
        }
        let place = interval - self.first;
        if place >= self.sums.len() {
            self.sums.resize(place + 1, 0);
        }
        self.sums.get_mut(place)
    }

    fn weights(self) -> Vec<i64> {
        let mut weights = vec![0; self.first];
        weights.extend(self.sums);
        weights.resize(self.intervals.count, 0);
        weights
    }
}

impl Accumulate for IntervalSums {
    fn add(&mut self, time: i64, weight: i64, _stack: u32) -> bool {
        let time = u64::try_from(time).unwrap_or(0).saturating_mul(1000);
        let since = time.saturating_sub(self.intervals.start);
        let interval = usize::try_from(since / self.intervals.step).unwrap_or(usize::MAX);
        if interval < self.intervals.count
            && let Some(sum) = self.at(interval)
        {
            *sum = sum.saturating_add(weight);
        }
        true
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        for (place, weight) in other.sums.into_iter().enumerate() {
            if let Some(sum) = self.at(other.first + place) {
                *sum = sum.saturating_add(weight);
            }
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        // The result has all intervals.
        self.intervals.count as u64 * 8
    }
}

/// The sums of the segments so far.
struct SeriesFold {
    intervals: Intervals,
    memory: u64,
    sums: Groups<IntervalSums>,
}

impl Fold<IntervalSums> for SeriesFold {
    type Loaded = ();

    fn load(&self, _: &SegmentScan, _: &Groups<IntervalSums>) -> BoxFuture<'static, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn fold(&mut self, _segment: &SegmentScan, groups: Groups<IntervalSums>, (): ()) -> Result<()> {
        check_memory(self.intervals.count as u64 * 8, self.memory)?;
        self.sums.add(groups)
    }
}
