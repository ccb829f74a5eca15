//! The axis of numbers: equal buckets, linear or logarithmic.

/// The ratio of the largest to the smallest number from which the axis is logarithmic.
const WIDE: f64 = 1000.0;

/// Buckets of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueScale {
    low: f64,
    high: f64,
    count: usize,
    kind: ScaleKind,
}

/// The widths of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScaleKind {
    /// A bucket for each whole number.
    Whole,
    /// Equal differences.
    #[default]
    Linear,
    /// Equal ratios.
    Logarithmic,
}

impl ValueScale {
    /// Builds at most `most` buckets for finite numbers. `None`: there are no numbers.
    pub(super) fn new(values: &[f64], most: usize) -> Option<Self> {
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        let is_whole = values.iter().all(|value| value.fract() == 0.0);
        let (kind, count) = if low == high {
            (ScaleKind::Whole, 1)
        } else if is_whole && high - low < most as f64 {
            (ScaleKind::Whole, (high - low) as usize + 1)
        } else if low > 0.0 && high / low >= WIDE {
            (ScaleKind::Logarithmic, most)
        } else {
            (ScaleKind::Linear, most)
        };
        Some(Self {
            low,
            high,
            count: count.clamp(1, most.max(1)),
            kind,
        })
    }

    /// Returns the smallest number.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Returns the largest number.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.high
    }

    /// Returns the number of buckets.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether buckets have equal ratios.
    #[must_use]
    pub fn is_logarithmic(&self) -> bool {
        self.kind == ScaleKind::Logarithmic
    }

    /// Returns the bucket of a number between the smallest and the largest.
    pub(super) fn bucket(&self, value: f64) -> usize {
        let at = match self.kind {
            ScaleKind::Whole => value - self.low,
            _ => {
                let (low, high) = (self.place(self.low), self.place(self.high));
                let share = (self.place(value) - low) / (high - low).max(f64::MIN_POSITIVE);
                share * self.count as f64
            }
        };
        // A cast saturates.
        (at as usize).min(self.count.saturating_sub(1))
    }

    /// Returns the first and the last number of a bucket.
    #[must_use]
    pub fn bounds(&self, bucket: usize) -> (f64, f64) {
        match self.kind {
            ScaleKind::Whole => {
                let value = self.low + bucket as f64;
                (value, value)
            }
            _ => (self.edge(bucket), self.edge(bucket.saturating_add(1))),
        }
    }

    /// Returns the number at which a bucket begins.
    fn edge(&self, bucket: usize) -> f64 {
        if bucket == 0 {
            return self.low;
        }
        if bucket >= self.count {
            return self.high;
        }
        let (low, high) = (self.place(self.low), self.place(self.high));
        let place = low + (high - low) * (bucket as f64 / self.count as f64);
        match self.kind {
            ScaleKind::Logarithmic => place.exp(),
            _ => place * self.size(),
        }
    }

    /// Returns the place of a number on the axis. The difference of two places is finite.
    fn place(&self, value: f64) -> f64 {
        match self.kind {
            ScaleKind::Logarithmic => value.ln(),
            _ => value / self.size(),
        }
    }

    fn size(&self) -> f64 {
        self.low.abs().max(self.high.abs()).max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_a_bucket_each() {
        let scale = ValueScale::new(&[3.0, 0.0, 9.0], 60).unwrap();
        assert_eq!((scale.count(), scale.bucket(3.0), scale.bucket(9.0)), (10, 3, 9));
        assert_eq!(scale.bounds(3), (3.0, 3.0));
        let one = ValueScale::new(&[2.5, 2.5], 60).unwrap();
        assert_eq!((one.count(), one.bucket(2.5), one.bounds(0)), (1, 0, (2.5, 2.5)));
        assert_eq!(ValueScale::new(&[], 60), None);
    }

    #[test]
    fn wide_ranges_are_logarithmic() {
        let scale = ValueScale::new(&[1.0, 10.5, 1_000_000.0], 60).unwrap();
        assert!(scale.is_logarithmic());
        assert_eq!((scale.bucket(1.0), scale.bucket(1_000_000.0)), (0, 59));
        assert!((29..=30).contains(&scale.bucket(1000.0)));
        let with_zero = ValueScale::new(&[0.0, 0.5, 1_000_000.0], 60).unwrap();
        assert!(!with_zero.is_logarithmic());
    }

    #[test]
    fn extreme_numbers_have_finite_bounds() {
        for values in [
            [f64::MIN, f64::MAX],
            [f64::MIN_POSITIVE, f64::MAX],
            [5e-324, 1e-323],
            [-5e-324, 5e-324],
            [i64::MIN as f64, i64::MAX as f64],
            [9_007_199_254_740_992.0, 9_007_199_254_740_994.0],
        ] {
            let scale = ValueScale::new(&values, 60).unwrap();
            for value in values {
                assert!(scale.bucket(value) < scale.count(), "{values:?}");
            }
            for bucket in 0..scale.count() {
                let (from, to) = scale.bounds(bucket);
                assert!(from.is_finite() && to.is_finite() && from <= to, "{values:?}");
            }
        }
    }
}
