//! Regressions of functions between two builds, with confidence intervals.
//!
//! A unit is one observation of a build, such as a host during five minutes. It has a weight for
//! each function. Load differs between units, so weights are divided by the size of their unit. A
//! sum would be a bad size: a function that grows would make all others appear to shrink. The size
//! is the median, over functions, of the ratio to a reference unit. This is the normalization of
//! DESeq (Anders and Huber, Genome Biology 2010).
//!
//! The difference of two means has the interval of Welch's t-test. The level of each function is
//! the configured one divided by the number of functions (Bonferroni). One false report among all
//! functions is so rare.

use puruspe::invbetai;

/// The smallest share of the total that a function needs for the normalization. Rare functions have
/// no sample in some units, and must not decide the size of a unit.
const LEAST_SHARE: f64 = 1e-4;

/// The thresholds of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegressionRule {
    /// The probability that a comparison without a change reports nothing, as 0.99.
    pub confidence: f64,
    /// The least change in shares of the earlier total, as 0.001 for 0.1 %.
    pub least_change: f64,
}

impl Default for RegressionRule {
    fn default() -> Self {
        Self {
            confidence: 0.99,
            least_change: 0.001,
        }
    }
}

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The later build spends more in the function.
    Slower,
    /// The later build spends less in the function.
    Faster,
}

/// A function whose cost changed. All numbers are shares of the earlier build's total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionChange {
    /// The index of the function.
    pub function: usize,
    /// The mean before.
    pub before: f64,
    /// The mean after.
    pub after: f64,
    /// The bounds of the interval of the difference.
    pub interval: (f64, f64),
    /// The direction.
    pub direction: Direction,
}

impl FunctionChange {
    /// Returns the difference of the means.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }
}

/// The reason for which two builds cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComparisonError {
    /// A build has too few units.
    #[error("a comparison needs at least two observations of each build with samples")]
    TooFewUnits,
    /// No function is in all units.
    #[error("no function is in most observations of both builds, so that their load is unknown")]
    NoCommonFunction,
}

/// Compares the units of two builds. Each unit has one weight for each function, in the same order.
/// Returns the changed functions, the largest change first.
///
/// ```
/// use backtrail_store::regression::{RegressionRule, changed_functions};
///
/// // Three functions on four hosts. The last one costs more in the later build.
/// let before = [[50.0, 30.0, 20.0], [100.0, 61.0, 40.0], [25.0, 15.0, 10.1], [49.0, 30.0, 20.0]];
/// let after = [[50.0, 30.0, 30.0], [99.0, 60.0, 59.0], [25.0, 15.1, 15.0], [50.0, 30.0, 30.1]];
/// let changes = changed_functions(&before, &after, RegressionRule::default())?;
/// assert_eq!(changes.len(), 1);
/// assert_eq!(changes[0].function, 2);
/// assert!((changes[0].difference() - 0.1).abs() < 0.01);
/// # Ok::<(), backtrail_store::regression::ComparisonError>(())
/// ```
///
/// # Errors
///
/// [`ComparisonError`] if a build has less than two units with weights, or the units have no
/// function in common.
pub fn changed_functions<U: AsRef<[f64]>>(
    before: &[U],
    after: &[U],
    rule: RegressionRule,
) -> Result<Vec<FunctionChange>, ComparisonError> {
    let (before, after) = (with_weights(before), with_weights(after));
    if before.len() < 2 || after.len() < 2 {
        return Err(ComparisonError::TooFewUnits);
    }
    let reference = mean_shares(&before);
    let (before, after) = (scaled(&before, &reference), scaled(&after, &reference));
    let (Some(before), Some(after)) = (before, after) else {
        return Err(ComparisonError::NoCommonFunction);
    };
    let tested: Vec<usize> = (0..reference.len())
        .filter(|&function| {
            [&before, &after]
                .iter()
                .any(|units| units.iter().any(|unit| unit[function] > 0.0))
        })
        .collect();
    let level = (1.0 - rule.confidence) / (2.0 * tested.len().max(1) as f64);
    let mut changes: Vec<FunctionChange> = tested
        .into_iter()
        .filter_map(|function| change(function, &before, &after, level))
        .filter(|change| change.difference().abs() >= rule.least_change)
        .collect();
    changes.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    Ok(changes)
}

/// Returns the units that have a weight.
fn with_weights<U: AsRef<[f64]>>(units: &[U]) -> Vec<&[f64]> {
    let units = units.iter().map(AsRef::as_ref);
    units.filter(|unit| unit.iter().sum::<f64>() > 0.0).collect()
}

/// Returns the mean share of each function.
fn mean_shares(units: &[&[f64]]) -> Vec<f64> {
    let length = units.iter().map(|unit| unit.len()).max().unwrap_or(0);
    let mut shares = vec![0.0; length];
    for unit in units {
        let total: f64 = unit.iter().sum();
        for (share, weight) in shares.iter_mut().zip(*unit) {
            *share += weight / total / units.len() as f64;
        }
    }
    shares
}

/// Divides the weights of each unit by its size. A size of one has the reference's total of 1.
/// `None`: no unit has a function of the reference.
fn scaled(units: &[&[f64]], reference: &[f64]) -> Option<Vec<Vec<f64>>> {
    let scaled: Vec<Vec<f64>> = units
        .iter()
        .filter_map(|unit| {
            let size = size_of(unit, reference)?;
            let weights =
                (0..reference.len()).map(|function| unit.get(function).copied().unwrap_or(0.0) / size);
            Some(weights.collect())
        })
        .collect();
    (scaled.len() >= 2).then_some(scaled)
}

/// Returns the size of a unit: the median of the ratios to the reference. Each function counts by
/// its share, because the ratio of a rare function is mostly noise.
fn size_of(unit: &[f64], reference: &[f64]) -> Option<f64> {
    let mut ratios: Vec<(f64, f64)> = unit
        .iter()
        .zip(reference)
        .filter(|&(_, &share)| share >= LEAST_SHARE)
        .map(|(weight, share)| (weight / share, share.sqrt()))
        .collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = ratios.iter().map(|(_, share)| share).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let median = ratios.iter().find(|(_, share)| {
        sum += share;
        sum >= half
    });
    median.map(|&(ratio, _)| ratio).filter(|&ratio| ratio > 0.0)
}

/// The mean of some values, and the variance of that mean.
struct Mean {
    value: f64,
    variance: f64,
    freedom: f64,
}

fn mean(units: &[Vec<f64>], function: usize) -> Mean {
    let count = units.len() as f64;
    let value = units.iter().map(|unit| unit[function]).sum::<f64>() / count;
    let squares: f64 = units.iter().map(|unit| (unit[function] - value).powi(2)).sum();
    Mean {
        value,
        variance: squares / (count - 1.0) / count,
        freedom: count - 1.0,
    }
}

/// Returns the change of a function. `None`: the interval contains zero. `level` is the probability
/// of each side.
fn change(function: usize, before: &[Vec<f64>], after: &[Vec<f64>], level: f64) -> Option<FunctionChange> {
    let (first, second) = (mean(before, function), mean(after, function));
    let variance = first.variance + second.variance;
    let difference = second.value - first.value;
    let reach = if variance > 0.0 {
        // Welch and Satterthwaite.
        let freedom = variance.powi(2)
            / (first.variance.powi(2) / first.freedom + second.variance.powi(2) / second.freedom);
        upper_quantile(freedom, level) * variance.sqrt()
    } else {
        0.0
    };
    (difference.abs() > reach).then_some(FunctionChange {
        function,
        before: first.value,
        after: second.value,
        interval: (difference - reach, difference + reach),
        direction: if difference > 0.0 {
            Direction::Slower
        } else {
            Direction::Faster
        },
    })
}

/// Returns the value that Student's t exceeds with a probability below one half. For t, the
/// incomplete beta function at `freedom / (freedom + t²)` is twice this probability (Abramowitz and
/// Stegun, 26.7.1).
fn upper_quantile(freedom: f64, probability: f64) -> f64 {
    let x = invbetai(2.0 * probability, freedom / 2.0, 0.5);
    if x > 0.0 {
        (freedom * (1.0 / x - 1.0)).max(0.0).sqrt()
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: usize = 200;
    const UNITS: usize = 40;

    /// A generator of random numbers (xorshift64*).
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// The sum of twelve uniform numbers is nearly normal.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }
    }

    /// Returns units of a service whose functions have costs like a power law. Counts have their
    /// noise, and each unit has a load and a mix of requests of its own.
    fn units(random: &mut Random, count: usize, costs: &[f64]) -> Vec<Vec<f64>> {
        (0..count)
            .map(|_| {
                let samples = 20_000.0 * (0.5 + random.uniform());
                let costs = costs.iter().map(|cost| {
                    // Requests differ between units: 5 % for each function.
                    let mean = samples * cost * (1.0 + 0.05 * random.normal());
                    (mean + mean.sqrt() * random.normal()).max(0.0).round()
                });
                costs.collect()
            })
            .collect()
    }

    fn costs() -> Vec<f64> {
        let costs: Vec<f64> = (1..=FUNCTIONS).map(|rank| 1.0 / rank as f64).collect();
        let total: f64 = costs.iter().sum();
        costs.into_iter().map(|cost| cost / total).collect()
    }

    #[test]
    fn quantiles_are_those_of_published_tables() {
        for (freedom, probability, expected) in [
            (1.0, 0.025, 12.706),
            (5.0, 0.005, 4.0321),
            (10.0, 0.025, 2.2281),
            (30.0, 0.0005, 3.6460),
            (120.0, 0.0005, 3.3735),
        ] {
            let found = upper_quantile(freedom, probability);
            assert!(
                (found / expected - 1.0).abs() < 1e-4,
                "{freedom} {probability}: {found}"
            );
        }
        // Tails are far out for many functions.
        assert!(upper_quantile(40.0, 2.5e-5) > 4.5 && upper_quantile(40.0, 2.5e-5) < 4.7);
    }

    #[test]
    fn planted_regression_is_found_over_seeds() {
        for seed in 1..=20 {
            let mut random = Random(seed);
            let before = costs();
            let mut after = before.clone();
            let planted = 5 + (random.uniform() * (FUNCTIONS - 5) as f64) as usize;
            after[planted] += 0.03;
            let before = units(&mut random, UNITS, &before);
            let after = units(&mut random, UNITS, &after);
            let changes = changed_functions(&before, &after, RegressionRule::default()).unwrap();
            let found: Vec<_> = changes.iter().map(|change| change.function).collect();
            assert_eq!(found, [planted], "seed {seed}: {changes:?}");
            let (low, high) = changes[0].interval;
            assert!(low < 0.03 && 0.03 < high, "seed {seed}: {changes:?}");
        }
    }

    #[test]
    fn function_that_is_slower_by_3_percent_is_found() {
        for seed in 1..=20 {
            let mut random = Random(seed << 16 | 5);
            let before = costs();
            let mut after = before.clone();
            after[3] *= 1.03;
            let before = units(&mut random, 30 * UNITS, &before);
            let after = units(&mut random, 30 * UNITS, &after);
            let changes = changed_functions(&before, &after, RegressionRule::default()).unwrap();
            let found: Vec<_> = changes.iter().map(|change| change.function).collect();
            assert_eq!(found, [3], "seed {seed}: {changes:?}");
        }
    }

    #[test]
    fn builds_without_a_change_are_not_reported() {
        for seed in 1..=20 {
            let mut random = Random(seed << 32 | 7);
            let costs = costs();
            let before = units(&mut random, UNITS, &costs);
            let after = units(&mut random, UNITS, &costs);
            let changes = changed_functions(&before, &after, RegressionRule::default()).unwrap();
            assert_eq!(changes, [], "seed {seed}");
        }
    }

    #[test]
    fn growth_of_one_function_does_not_shrink_others() {
        let mut random = Random(3);
        let before = costs();
        let mut after = before.clone();
        after[2] += 0.5;
        let (before, after) = (
            units(&mut random, UNITS, &before),
            units(&mut random, UNITS, &after),
        );
        let changes = changed_functions(&before, &after, RegressionRule::default()).unwrap();
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].direction, Direction::Slower);
    }

    #[test]
    fn few_or_empty_units_cannot_be_compared() {
        let rule = RegressionRule::default();
        let units = [vec![1.0, 2.0], vec![1.0, 2.0]];
        assert_eq!(
            changed_functions(&units[..1], &units, rule),
            Err(ComparisonError::TooFewUnits)
        );
        let empty = [vec![0.0, 0.0], vec![0.0, 0.0]];
        assert_eq!(
            changed_functions(&units, &empty, rule),
            Err(ComparisonError::TooFewUnits)
        );
        let others = [vec![0.0, 0.0, 5.0], vec![0.0, 0.0, 6.0]];
        assert_eq!(
            changed_functions(&units, &others, rule),
            Err(ComparisonError::NoCommonFunction)
        );
        assert_eq!(changed_functions(&units, &units, rule), Ok(vec![]));
    }
}
