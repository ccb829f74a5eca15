//! The percentiles of lengths.

use super::Span;
use serde::Serialize;

/// The percentiles of some lengths.
///
/// Each figure has a lower and an upper bound, over all lengths that the trace allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// The shortest.
    pub min: Span,
    /// Half of them are no longer.
    pub p50: Span,
    /// Nine in ten are no longer.
    pub p90: Span,
    /// 99 in 100 are no longer.
    pub p99: Span,
    /// The longest.
    pub max: Span,
}

impl Percentiles {
    /// Returns the percentiles of some spans; `None` if there are none.
    #[must_use]
    pub fn of(spans: impl Iterator<Item = Span> + Clone) -> Option<Self> {
        let sorted = |bound: fn(Span) -> u64| {
            let mut bounds: Vec<u64> = spans.clone().map(bound).collect();
            bounds.sort_unstable();
            bounds
        };
        // No length is below its lower bound, so the nth length is not below the nth lower bound.
        // The same holds above.
        let (least, most) = (sorted(|span| span.least), sorted(|span| span.most));
        let at = |percent: usize| {
            Some(Span {
                least: nearest_rank(&least, percent)?,
                most: nearest_rank(&most, percent)?,
            })
        };
        Some(Self {
            min: at(0)?,
            p50: at(50)?,
            p90: at(90)?,
            p99: at(99)?,
            max: at(100)?,
        })
    }

    /// The figures with their names, from the shortest to the longest.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Span); 5] {
        [
            ("min", self.min),
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("max", self.max),
        ]
    }
}

/// Returns the nearest-rank percentile of sorted values.
fn nearest_rank(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_percentile_is_one_of_the_lengths() {
        let percentiles = |count: u64| Percentiles::of((1..=count).map(Span::exactly));
        assert_eq!(percentiles(0), None);
        let one = percentiles(1).unwrap();
        assert_eq!((one.min, one.p99), (Span::exactly(1), Span::exactly(1)));
        let hundred = percentiles(100).unwrap();
        let figures = [hundred.min, hundred.p50, hundred.p90, hundred.p99, hundred.max];
        assert_eq!(figures.map(|span| span.most), [1, 50, 90, 99, 100]);
        assert_eq!(percentiles(10).unwrap().p99, Span::exactly(10));
    }

    proptest! {
        #[test]
        fn no_lengths_that_are_allowed_have_another_spread(
            spans in prop::collection::vec((0u64..1000, 0u64..1000, 0u64..1000), 1..60),
        ) {
            // The true length is within the bounds, at an unknown point.
            let truths: Vec<u64> = spans.iter().map(|&(least, more, _)| least + more).collect();
            let spans: Vec<Span> = spans
                .into_iter()
                .map(|(least, more, above)| Span { least, most: least + more + above })
                .collect();
            let known = Percentiles::of(spans.into_iter()).unwrap();
            let truth = Percentiles::of(truths.into_iter().map(Span::exactly)).unwrap();
            for (known, truth) in [
                (known.min, truth.min),
                (known.p50, truth.p50),
                (known.p90, truth.p90),
                (known.p99, truth.p99),
                (known.max, truth.max),
            ] {
                prop_assert!(known.least <= truth.least && truth.most <= known.most);
            }
        }
    }
}
