//! The query for a distribution of weights.

use crate::Result;
use crate::filter::Column;
use crate::limits::Coverage;
use crate::query::Query;
use crate::scan::{Accumulate, Fold, Groups, Needs, Scan, SegmentScan, scan};
use crate::store::Store;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;

/// The buckets between two powers of two. A value is within 1/8 of its bucket's bounds.
const PER_POWER: u64 = 8;

/// A histogram. The widths of its buckets grow with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The number of values.
    pub count: u64,
    /// The sum of values. It saturates.
    pub sum: i64,
    /// The smallest value. Without values, it is 0.
    pub min: i64,
    /// The largest value. Without values, it is 0.
    pub max: i64,
    /// The buckets with values, in ascending order.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value that belongs to the bucket.
    pub from: i64,
    /// The largest value that belongs to the bucket.
    pub to: i64,
    /// The number of values.
    pub count: u64,
}

impl Distribution {
    /// Returns a bound that at least a share of the values do not exceed. The share is between 0
    /// and 1.
    #[must_use]
    pub fn quantile(&self, share: f64) -> i64 {
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for bucket in &self.buckets {
            below += bucket.count;
            if below >= rank {
                return bucket.to.min(self.max);
            }
        }
        self.max
    }
}

impl Store {
    /// Returns the distribution of the weights of samples.
    ///
    /// # Errors
    ///
    /// As [`Store::merge`].
    pub async fn distribution(&self, query: &Query) -> Result<(Distribution, Coverage)> {
        let (segments, pruned) = self.segments(query).await?;
        let columns = Scan {
            filter: query.filter.clone(),
            group_by: Vec::new(),
            needs: Needs {
                weight: true,
                ..Needs::default()
            },
        };
        let mut fold = DistributionFold(Histogram::default());
        let new = |_: &SegmentScan| Histogram::default();
        let mut coverage = scan(&self.reader, query, columns, segments, new, &mut fold).await?;
        coverage.segments_pruned = pruned;
        Ok((fold.0.finish(), coverage))
    }

    /// Returns the distribution of sums of weights: one sum for each group and interval. Intervals
    /// without samples are sums of 0.
    ///
    /// # Errors
    ///
    /// As [`Store::series`].
    pub async fn distribution_of_sums(
        &self,
        query: &Query,
        step: u64,
        group_by: &[Column],
    ) -> Result<(Distribution, Coverage)> {
        let (series, coverage) = self.series(query, step, group_by).await?;
        let mut histogram = Histogram::default();
        for group in series.groups {
            for weight in group.weights {
                histogram.add(0, weight, 0);
            }
        }
        Ok((histogram.finish(), coverage))
    }
}

/// The counts of values by the lower bound of their buckets.
#[derive(Default)]
struct Histogram {
    count: u64,
    sum: i64,
    range: Option<(i64, i64)>,
    buckets: BTreeMap<i64, u64>,
    /// The bucket of the last value, because values repeat.
    last: Option<(i64, i64, u64)>,
}

impl Histogram {
    /// Adds the count of the last values to their bucket.
    fn flush(&mut self) {
        if let Some((_, from, count)) = self.last.take() {
            *self.buckets.entry(from).or_default() += count;
        }
    }

    fn finish(mut self) -> Distribution {
        self.flush();
        let (min, max) = self.range.unwrap_or_default();
        let bucket = |(from, count): (i64, u64)| Bucket {
            from,
            to: bounds(from).1,
            count,
        };
        Distribution {
            count: self.count,
            sum: self.sum,
            min,
            max,
            buckets: self.buckets.into_iter().map(bucket).collect(),
        }
    }
}

impl Accumulate for Histogram {
    fn add(&mut self, _time: i64, weight: i64, _stack: u32) -> bool {
        self.count += 1;
        self.sum = self.sum.saturating_add(weight);
        let (min, max) = self.range.unwrap_or((weight, weight));
        self.range = Some((min.min(weight), max.max(weight)));
        match &mut self.last {
            Some((value, _, count)) if *value == weight => *count += 1,
            _ => {
                self.flush();
                self.last = Some((weight, bounds(weight).0, 1));
            }
        }
        true
    }

    fn absorb(&mut self, mut other: Self) -> Result<()> {
        other.flush();
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.range = match (self.range, other.range) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, another) => one.or(another),
        };
        for (from, count) in other.buckets {
            *self.buckets.entry(from).or_default() += count;
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        // There are at most eight buckets for each of 63 powers, and as many of negative values.
        PER_POWER * 63 * 2 * 32
    }
}

/// Returns the bounds of a value's bucket.
fn bounds(value: i64) -> (i64, i64) {
    let (from, to) = bounds_of_magnitude(value.unsigned_abs());
    let limit = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    match value < 0 {
        true => (-limit(to), -limit(from)),
        false => (limit(from), limit(to)),
    }
}

fn bounds_of_magnitude(value: u64) -> (u64, u64) {
    // Values below this bound have a bucket each.
    if value < PER_POWER * 2 {
        return (value, value);
    }
    let width = 1 << (value.ilog2() - PER_POWER.ilog2());
    let from = value / width * width;
    (from, from + (width - 1))
}

/// The histogram of the segments so far.
struct DistributionFold(Histogram);

impl Fold<Histogram> for DistributionFold {
    type Loaded = ();

    fn load(&self, _: &SegmentScan, _: &Groups<Histogram>) -> BoxFuture<'static, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn fold(&mut self, _segment: &SegmentScan, groups: Groups<Histogram>, (): ()) -> Result<()> {
        groups
            .into_iter()
            .try_for_each(|(_, histogram)| self.0.absorb(histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn value_is_within_the_bounds_of_its_bucket(value in any::<i64>()) {
            let (from, to) = bounds(value);
            prop_assert!(value == i64::MIN || (from..=to).contains(&value));
            prop_assert_eq!(bounds(from), (from, to));
            let width = to.abs_diff(from);
            prop_assert!(width <= value.unsigned_abs() / PER_POWER);
        }

        #[test]
        fn absorbed_histograms_equal_one_of_all_values(
            a in prop::collection::vec(-50i64..5000, 0..40),
            b in prop::collection::vec(-50i64..5000, 0..40),
        ) {
            let of = |values: &[i64]| {
                let mut histogram = Histogram::default();
                for value in values {
                    histogram.add(0, *value, 0);
                }
                histogram
            };
            let mut sum = of(&a);
            sum.absorb(of(&b)).unwrap();
            let both: Vec<i64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(sum.finish(), of(&both).finish());
        }
    }

    #[test]
    fn quantile_is_a_bound_of_the_share() {
        let mut histogram = Histogram::default();
        for value in 1..=1000 {
            histogram.add(0, value, 0);
        }
        let distribution = histogram.finish();
        assert_eq!(
            (distribution.min, distribution.max, distribution.count),
            (1, 1000, 1000)
        );
        let half = distribution.quantile(0.5);
        assert!((500..=563).contains(&half), "{half}");
        assert_eq!(distribution.quantile(1.0), 1000);
        assert_eq!(Distribution::default().quantile(0.5), 0);
    }
}
