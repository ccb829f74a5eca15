//! Series over time of an answer: a line for each name and number column.

use super::columns::{self, AnswerColumn, ColumnKind};
use super::grid::TimeGrid;
use super::{no_number_in_range, no_time_in_range};
use crate::error::{Error, Result};
use crate::profiles::sql::SqlAnswer;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most lines.
const MAX_LINES: usize = 8;
/// The most intervals.
const MAX_INTERVALS: usize = 2000;

/// Lines with a common axis of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeSeries {
    /// The intervals.
    pub grid: TimeGrid,
    /// The lines, the largest first.
    pub lines: Vec<SeriesLine>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesLine {
    /// The name.
    pub name: String,
    /// A number for each interval. `None`: the answer has none.
    pub values: Vec<Option<f64>>,
}

/// Returns the series of an answer, in a range of times in microseconds since 1970.
///
/// # Errors
/// Fails if the answer has no times, or no numbers.
pub(super) fn series(answer: &SqlAnswer, range: &Range<i64>) -> Result<TimeSeries> {
    let columns = AnswerColumn::all(answer);
    let of_kind = |kind| AnswerColumn::of_kind(&columns, kind);
    let numbers: Vec<_> = of_kind(ColumnKind::Number).collect();
    let (Some(time), false) = (of_kind(ColumnKind::Time).next(), numbers.is_empty()) else {
        return Err(Error::Invalid(
            "a time series needs a column of times and a column of numbers, as date_trunc('minute', time) \
             and COUNT(*)"
                .to_owned(),
        ));
    };
    let texts: Vec<_> = of_kind(ColumnKind::Text).collect();
    let times = answer.rows.iter().filter_map(|row| time.time(row)).collect();
    let grid = TimeGrid::within(times, range, MAX_INTERVALS).ok_or_else(no_time_in_range)?;
    // Most of many series have few points.
    let mut points: BTreeMap<String, BTreeMap<usize, f64>> = BTreeMap::new();
    let (mut outside, mut is_added_up) = (0_usize, false);
    for row in &answer.rows {
        let Some(interval) = time.time(row).and_then(|time| grid.interval(time)) else {
            outside += 1;
            continue;
        };
        for column in &numbers {
            let Some(value) = column.number(row) else {
                continue;
            };
            let line = points
                .entry(name(&texts, column, numbers.len(), row))
                .or_default();
            let before = line.get(&interval).copied();
            is_added_up |= before.is_some();
            line.insert(interval, super::finite(before.unwrap_or(0.0) + value));
        }
    }
    if points.is_empty() {
        return Err(no_number_in_range());
    }
    let more = points.len().saturating_sub(MAX_LINES);
    let lines = largest(points).into_iter().map(|(name, points)| SeriesLine {
        name,
        values: (0..grid.count).map(|at| points.get(&at).copied()).collect(),
    });
    let notes = [
        (more > 0).then(|| format!("The largest {MAX_LINES} series are shown, and {more} more are not.")),
        (!grid.is_exact).then(|| {
            "The times have no common step, or too many of it. Each interval has the sum of its rows."
                .to_owned()
        }),
        (grid.is_exact && is_added_up)
            .then(|| "Rows of one series with the same time are added up.".to_owned()),
        (outside > 0).then(|| format!("Rows without a time, or outside of the chosen time: {outside}.")),
    ];
    Ok(TimeSeries {
        grid,
        lines: lines.collect(),
        notes: notes.into_iter().flatten().collect(),
    })
}

/// The points of a series by their intervals.
type SeriesPoints = (String, BTreeMap<usize, f64>);

/// Returns the largest series, the largest first.
fn largest(points: BTreeMap<String, BTreeMap<usize, f64>>) -> Vec<SeriesPoints> {
    let size = |points: &BTreeMap<usize, f64>| points.values().map(|value| value.abs()).sum::<f64>();
    let mut sized: Vec<(f64, SeriesPoints)> = points
        .into_iter()
        .map(|(name, points)| (size(&points), (name, points)))
        .collect();
    // Series of equal size stay in the order of their names.
    sized.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    sized.truncate(MAX_LINES);
    sized.into_iter().map(|(_, series)| series).collect()
}

/// Returns the name of a row's series.
fn name(
    texts: &[AnswerColumn<'_>],
    number: &AnswerColumn<'_>,
    numbers: usize,
    row: &serde_json::Value,
) -> String {
    match (texts.is_empty(), numbers) {
        (true, _) => number.name.to_owned(),
        (false, 1) => columns::labels(texts, row),
        (false, _) => format!("{} · {}", columns::labels(texts, row), number.name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use serde_json::{Value, json};

    const ALL: Range<i64> = i64::MIN..i64::MAX;
    const COLUMNS: [(&str, &str); 3] = [
        ("minute", "Timestamp(µs, \"UTC\")"),
        ("event", "Utf8View"),
        ("n", "Int64"),
    ];

    fn row(minute: u64, event: &str, n: Value) -> Value {
        json!({ "minute": format!("2026-11-29T10:{minute:02}:00Z"), "event": event, "n": n })
    }

    #[test]
    fn missing_points_are_gaps() {
        let rows = vec![
            row(0, "cpu", json!(10)),
            row(1, "cpu", json!(20)),
            row(3, "cpu", json!(30)),
            row(1, "heap", json!(1)),
            row(2, "heap", json!(null)),
        ];
        let found = series(&sample(&COLUMNS, rows), &ALL).unwrap();
        assert_eq!((found.grid.step, found.grid.count), (60_000_000, 4));
        let lines: Vec<_> = found
            .lines
            .iter()
            .map(|line| (line.name.as_str(), line.values.as_slice()))
            .collect();
        assert_eq!(
            lines,
            [
                ("cpu", &[Some(10.0), Some(20.0), None, Some(30.0)][..]),
                ("heap", &[None, Some(1.0), None, None][..]),
            ]
        );
        assert_eq!(found.notes, Vec::<String>::new());
    }

    #[test]
    fn largest_series_come_first() {
        let rows = (0..12).map(|number| row(0, &format!("e{number}"), json!(number)));
        let found = series(&sample(&COLUMNS, rows.collect()), &ALL).unwrap();
        let names: Vec<_> = found.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["e11", "e10", "e9", "e8", "e7", "e6", "e5", "e4"]);
        assert_eq!(
            found.notes,
            ["The largest 8 series are shown, and 4 more are not."]
        );
    }

    #[test]
    fn several_numbers_are_several_series() {
        let columns = [COLUMNS[0], ("a", "Int64"), ("b", "Float64"), ("event", "Utf8")];
        let rows = vec![json!({ "minute": "2026-11-29T10:00:00Z", "a": 1, "b": 0.5, "event": "cpu" })];
        let found = series(&sample(&columns, rows.clone()), &ALL).unwrap();
        let names: Vec<_> = found.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["cpu · a", "cpu · b"]);
        let found = series(&sample(&columns[..3], rows), &ALL).unwrap();
        assert_eq!(found.lines[0].name, "a");
    }

    #[test]
    fn chosen_time_and_equal_times_are_said() {
        let rows = vec![
            row(0, "cpu", json!(1)),
            row(1, "cpu", json!(2)),
            row(1, "cpu", json!(3)),
            row(2, "cpu", json!(4)),
            json!({ "minute": null, "event": "cpu", "n": 5 }),
        ];
        let start = super::super::times::micros("2026-11-29T10:01:00Z").unwrap();
        let found = series(&sample(&COLUMNS, rows), &(start..start + 60_000_000)).unwrap();
        assert_eq!(found.lines[0].values, [Some(5.0)]);
        assert_eq!(
            found.notes,
            [
                "Rows of one series with the same time are added up.",
                "Rows without a time, or outside of the chosen time: 3."
            ]
        );
        let error = series(&sample(&COLUMNS, vec![row(0, "cpu", json!(1))]), &(0..1)).unwrap_err();
        assert!(error.to_string().contains("chosen time"), "{error}");
    }

    #[test]
    fn answers_without_times_or_numbers_are_refused() {
        for columns in [&COLUMNS[..2], &COLUMNS[1..], &[]] {
            let error = series(&sample(columns, Vec::new()), &ALL)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("a time series needs"), "{error}");
        }
        let null = vec![row(0, "cpu", json!(null))];
        assert!(series(&sample(&COLUMNS, null), &ALL).is_err());
    }

    #[test]
    fn many_rows_and_extreme_numbers_are_bounded() {
        let values = [
            json!(f64::MAX),
            json!(f64::MIN),
            json!(i64::MAX),
            json!("x"),
            json!([]),
        ];
        let rows = (0..10_000_usize).map(|number| {
            let value = &values[number % values.len()];
            let time = format!(
                "2026-11-29T{:02}:{:02}:{:02}.{number:04}Z",
                number % 24,
                number % 60,
                number % 59
            );
            json!({ "minute": time, "event": format!("<b>{}\0", number % 300), "n": value })
        });
        let found = series(&sample(&COLUMNS, rows.collect()), &ALL).unwrap();
        assert_eq!(found.lines.len(), MAX_LINES);
        assert!(!found.grid.is_exact && found.grid.count <= 120);
        assert!(
            found
                .lines
                .iter()
                .all(|line| line.values.iter().flatten().all(|value| value.is_finite()))
        );
    }
}
