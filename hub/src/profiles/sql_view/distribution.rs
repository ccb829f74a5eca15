//! The distribution of the numbers of an answer.

use super::columns::{AnswerColumn, ColumnKind};
use super::scale::ValueScale;
use crate::error::{Error, Result};
use crate::profiles::sql::SqlAnswer;

/// The most bars.
const MAX_BARS: usize = 60;
/// The shares of the percentiles.
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// The distribution of a column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerDistribution {
    /// The column with the numbers.
    pub column: String,
    /// The buckets.
    pub scale: ValueScale,
    /// The numbers in each bucket.
    pub counts: Vec<u64>,
    /// The count of all numbers.
    pub count: u64,
    /// The median, and the 90, 99 and 99.9 % percentiles, with linear interpolation.
    pub percentiles: [f64; 4],
    /// The rows without a finite number.
    pub missing: u64,
}

/// Returns the distribution of the first column of numbers.
///
/// # Errors
/// Fails if the answer has no numbers.
pub(super) fn distribution(answer: &SqlAnswer) -> Result<AnswerDistribution> {
    let columns = AnswerColumn::all(answer);
    let column = columns.iter().find(|column| column.kind == ColumnKind::Number);
    let column = column
        .ok_or_else(|| Error::Invalid("a distribution needs a column of numbers, as weight".to_owned()))?;
    let mut values: Vec<f64> = answer.rows.iter().filter_map(|row| column.number(row)).collect();
    values.sort_by(f64::total_cmp);
    let scale = ValueScale::new(&values, MAX_BARS)
        .ok_or_else(|| Error::Invalid("no row of this answer has a finite number".to_owned()))?;
    let mut counts = vec![0_u64; scale.count()];
    for value in &values {
        if let Some(count) = counts.get_mut(scale.bucket(*value)) {
            *count += 1;
        }
    }
    Ok(AnswerDistribution {
        column: column.name.to_owned(),
        scale,
        counts,
        count: values.len() as u64,
        percentiles: SHARES.map(|share| percentile(&values, share)),
        missing: (answer.rows.len() - values.len()) as u64,
    })
}

/// Returns the percentile of sorted numbers.
fn percentile(values: &[f64], share: f64) -> f64 {
    let at = values.len().saturating_sub(1) as f64 * share;
    let value = |index: f64| values.get(index as usize).copied().unwrap_or_default();
    let (below, above) = (value(at.floor()), value(at.ceil()));
    if below == above {
        return below;
    }
    // The difference of two numbers may be infinite.
    below * (1.0 - at.fract()) + above * at.fract()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use serde_json::{Value, json};

    fn found(values: Vec<Value>) -> Result<AnswerDistribution> {
        let rows = values.into_iter().map(|value| json!({ "n": value })).collect();
        distribution(&sample(&[("name", "Utf8"), ("n", "Float64")], rows))
    }

    #[test]
    fn percentiles_are_exact() {
        let all = found((1..=1001).map(|number| json!(number)).collect()).unwrap();
        assert_eq!(all.percentiles, [501.0, 901.0, 991.0, 1000.0]);
        assert_eq!(
            (all.count, all.missing, all.counts.iter().sum::<u64>()),
            (1001, 0, 1001)
        );
        let two = found(vec![json!(2), json!(1)]).unwrap();
        assert_eq!((two.percentiles[0], two.counts.as_slice()), (1.5, &[1, 1][..]));
        let one = found(vec![json!(7.5)]).unwrap();
        assert_eq!((one.percentiles, one.counts.as_slice()), ([7.5; 4], &[1][..]));
    }

    #[test]
    fn values_that_are_no_numbers_are_counted() {
        let all = found(vec![json!(null), json!("x"), json!("NaN"), json!([]), json!(1)]).unwrap();
        assert_eq!((all.count, all.missing), (1, 4));
        for values in [vec![], vec![json!(null)]] {
            let error = found(values).unwrap_err().to_string();
            assert_eq!(error, "no row of this answer has a finite number");
        }
        let error = distribution(&sample(&[("name", "Utf8")], Vec::new())).unwrap_err();
        assert!(error.to_string().starts_with("a distribution needs"), "{error}");
    }

    #[test]
    fn extreme_numbers_stay_finite() {
        let all = found(vec![
            json!(f64::MIN),
            json!(f64::MAX),
            json!(i64::MIN),
            json!(u64::MAX),
        ])
        .unwrap();
        assert!(all.percentiles.iter().all(|value| value.is_finite()), "{all:?}");
        assert_eq!((all.scale.low(), all.scale.high()), (f64::MIN, f64::MAX));
        assert!(all.counts.len() <= MAX_BARS && all.counts.iter().sum::<u64>() == 4);
    }
}
