//! Thresholds: a number of the first row of a result, and the bound that it crosses.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// A comparison with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// Above the bound.
    #[serde(rename = ">")]
    Above,
    /// Above the bound, or equal.
    #[serde(rename = ">=")]
    AtLeast,
    /// Below the bound.
    #[serde(rename = "<")]
    Below,
    /// Below the bound, or equal.
    #[serde(rename = "<=")]
    AtMost,
}

impl Comparison {
    /// All comparisons.
    pub const ALL: [Self; 4] = [Self::Above, Self::AtLeast, Self::Below, Self::AtMost];

    /// Returns the sign.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::AtMost => "<=",
        }
    }

    /// Returns the comparison of a sign.
    #[must_use]
    pub fn of_sign(sign: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.sign() == sign)
    }
}

/// A threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// The column.
    pub column: String,
    /// The comparison that is an alert.
    pub comparison: Comparison,
    /// The bound.
    pub value: f64,
}

impl Threshold {
    /// Returns whether a number crosses the threshold.
    #[must_use]
    pub fn is_crossed(&self, number: f64) -> bool {
        match self.comparison {
            Comparison::Above => number > self.value,
            Comparison::AtLeast => number >= self.value,
            Comparison::Below => number < self.value,
            Comparison::AtMost => number <= self.value,
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            column,
            comparison,
            value,
        } = self;
        write!(formatter, "{column} {} {value}", comparison.sign())
    }
}

/// Returns the number in a column of a row. Decimals may be texts.
#[must_use]
pub fn number_in(row: &Map<String, Value>, column: &str) -> Option<f64> {
    let number = match row.get(column)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text.len() <= 64 => text.parse().ok(),
        Value::Bool(is_true) => Some(f64::from(u8::from(*is_true))),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_comparison_has_its_side() {
        let crossed = |sign: &str, number: f64| {
            let text = json!({ "column": "p99", "comparison": sign, "value": 2.5 });
            serde_json::from_value::<Threshold>(text)
                .unwrap()
                .is_crossed(number)
        };
        for (sign, expected) in [
            (">", [false, false, true]),
            (">=", [false, true, true]),
            ("<", [true, false, false]),
            ("<=", [true, true, false]),
        ] {
            assert_eq!(
                [2.0, 2.5, 3.0].map(|number| crossed(sign, number)),
                expected,
                "{sign}"
            );
            assert_eq!(Comparison::of_sign(sign).unwrap().sign(), sign);
        }
        assert_eq!(Comparison::of_sign("!="), None);
    }

    #[test]
    fn numbers_are_finite() {
        let row = json!({ "a": 1, "b": "2.5", "c": "x", "d": null, "e": true, "f": "inf", "g": "NaN" });
        let row = row.as_object().unwrap();
        let found = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|column| number_in(row, column));
        let expected = [Some(1.0), Some(2.5), None, None, Some(1.0), None, None, None];
        assert_eq!(found, expected);
    }
}
