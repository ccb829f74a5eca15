//! The columns of an answer: names, kinds, and the values of rows.

use super::times;
use crate::profiles::sql::SqlAnswer;
use serde_json::Value;
use std::borrow::Cow;

/// The text of a null that is a name.
const NULL: &str = "NULL";

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Times and dates.
    Time,
    /// Numbers.
    Number,
    /// Texts, and true or false.
    Text,
    /// Lists.
    List,
    /// Other values, which no view shows.
    Other,
}

impl ColumnKind {
    /// Returns the kind of a type in Arrow's notation.
    fn of(kind: &str) -> Self {
        let values = kind.strip_prefix("Dictionary(").and_then(|rest| {
            let (_, values) = rest.split_once(", ")?;
            Some(values)
        });
        let kind = values.unwrap_or(kind);
        let is = |names: &[&str]| names.iter().any(|name| kind.starts_with(name));
        // An `Interval` is no `Int`.
        let numbers = ["Int8", "Int16", "Int32", "Int64", "UInt", "Float", "Decimal"];
        if is(&["Timestamp", "Date32", "Date64"]) {
            Self::Time
        } else if is(&numbers) {
            Self::Number
        } else if is(&["Utf8", "LargeUtf8", "Boolean"]) {
            Self::Text
        } else if is(&["List", "LargeList", "FixedSizeList"]) {
            Self::List
        } else {
            Self::Other
        }
    }
}

/// A column of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnswerColumn<'a> {
    /// The name.
    pub(super) name: &'a str,
    /// The kind.
    pub(super) kind: ColumnKind,
}

impl<'a> AnswerColumn<'a> {
    /// Returns the columns of an answer in their order.
    pub(super) fn all(answer: &'a SqlAnswer) -> Vec<Self> {
        let columns = answer.coverage.get("columns").and_then(Value::as_array);
        let text = |column: &'a Value, key: &str| column.get(key).and_then(Value::as_str);
        columns
            .into_iter()
            .flatten()
            .filter_map(|column| {
                Some(Self {
                    name: text(column, "name")?,
                    kind: ColumnKind::of(text(column, "type").unwrap_or_default()),
                })
            })
            .collect()
    }

    /// Returns the columns of a kind in their order.
    pub(super) fn of_kind(columns: &[Self], kind: ColumnKind) -> impl Iterator<Item = Self> {
        columns.iter().copied().filter(move |column| column.kind == kind)
    }

    /// Returns the value in a row.
    pub(super) fn value<'r>(&self, row: &'r Value) -> Option<&'r Value> {
        row.get(self.name).filter(|value| !value.is_null())
    }

    /// Returns the text in a row.
    pub(super) fn text<'r>(&self, row: &'r Value) -> Option<&'r str> {
        self.value(row)?.as_str()
    }

    /// Returns the finite number in a row. The engine writes other numbers as null.
    pub(super) fn number(&self, row: &Value) -> Option<f64> {
        number(self.value(row)?)
    }

    /// Returns the time in a row, in microseconds since 1970.
    pub(super) fn time(&self, row: &Value) -> Option<i64> {
        times::micros(self.text(row)?)
    }
}

/// Returns a value as a finite number. Decimal numbers may be texts.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    Some(number).filter(|number| number.is_finite())
}

/// Returns the value of a column as a name.
pub(super) fn label<'r>(column: &AnswerColumn<'_>, row: &'r Value) -> Cow<'r, str> {
    match column.value(row) {
        None => Cow::Borrowed(NULL),
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(other) => Cow::Owned(other.to_string()),
    }
}

/// Returns the values of several columns as one name.
pub(super) fn labels(columns: &[AnswerColumn<'_>], row: &Value) -> String {
    let names: Vec<_> = columns.iter().map(|column| label(column, row)).collect();
    names.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds_are_those_of_types() {
        for (text, kind) in [
            ("Timestamp(Microsecond, Some(\"UTC\"))", ColumnKind::Time),
            ("Timestamp(µs, \"UTC\")", ColumnKind::Time),
            ("Date32", ColumnKind::Time),
            ("Int64", ColumnKind::Number),
            ("UInt32", ColumnKind::Number),
            ("Float64", ColumnKind::Number),
            ("Decimal128(38, 10)", ColumnKind::Number),
            ("Interval(MonthDayNano)", ColumnKind::Other),
            ("Utf8View", ColumnKind::Text),
            ("Dictionary(Int32, Utf8)", ColumnKind::Text),
            ("Dictionary(UInt8, Int64)", ColumnKind::Number),
            ("Boolean", ColumnKind::Text),
            ("List(nullable Utf8)", ColumnKind::List),
            ("Map(\"key_value\": Struct())", ColumnKind::Other),
            ("", ColumnKind::Other),
        ] {
            assert_eq!(ColumnKind::of(text), kind, "{text}");
        }
    }

    #[test]
    fn values_of_any_type_are_read_or_left_out() {
        let column = AnswerColumn {
            name: "a",
            kind: ColumnKind::Number,
        };
        for (value, expected) in [
            (json!(7), Some(7.0)),
            (json!(-1.5), Some(-1.5)),
            (json!(u64::MAX), Some(u64::MAX as f64)),
            (json!(i64::MIN), Some(i64::MIN as f64)),
            (json!("12.25"), Some(12.25)),
            (json!("NaN"), None),
            (json!("inf"), None),
            (json!(""), None),
            (json!(null), None),
            (json!([1]), None),
            (json!({}), None),
        ] {
            assert_eq!(column.number(&json!({ "a": value })), expected, "{value}");
        }
        assert_eq!(column.number(&json!({})), None);
        assert_eq!(column.number(&json!([])), None);
        let columns = [
            column,
            AnswerColumn {
                name: "b",
                kind: ColumnKind::Text,
            },
        ];
        assert_eq!(labels(&columns, &json!({ "a": true })), "true · NULL");
    }

    #[test]
    fn coverage_without_columns_has_none() {
        for coverage in [
            json!(null),
            json!({}),
            json!({ "columns": 1 }),
            json!({ "columns": [1, {}] }),
        ] {
            let answer = SqlAnswer {
                rows: Vec::new(),
                coverage,
                ..SqlAnswer::default()
            };
            assert_eq!(AnswerColumn::all(&answer), []);
        }
    }
}
