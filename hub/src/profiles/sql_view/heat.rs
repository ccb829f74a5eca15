//! A heat map of an answer: numbers or names by time.

use super::columns::{self, AnswerColumn, ColumnKind};
use super::grid::TimeGrid;
use super::scale::ValueScale;
use super::{finite, no_number_in_range, no_time_in_range};
use crate::error::{Error, Result};
use crate::profiles::sql::SqlAnswer;
use std::collections::HashMap;
use std::ops::Range;

/// The most intervals of time.
const MAX_COLUMNS: usize = 120;
/// The most names.
const MAX_NAMES: usize = 50;
/// The most buckets of numbers.
const MAX_BUCKETS: usize = 40;

/// Cells by time and row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerHeatMap {
    /// The intervals.
    pub grid: TimeGrid,
    /// The column with the numbers.
    pub column: String,
    /// The rows.
    pub rows: HeatRows,
    /// The cells of each interval. Its first row is the smallest number, or the first name.
    pub columns: Vec<Vec<f64>>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
}

/// The rows of a heat map.
#[derive(Clone, Debug, PartialEq)]
pub enum HeatRows {
    /// Buckets of numbers. A cell is a count.
    Numbers(ValueScale),
    /// Names, the largest first. A cell is a sum.
    Names(Vec<String>),
}

impl Default for HeatRows {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl HeatRows {
    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Numbers(scale) => scale.count(),
            Self::Names(names) => names.len(),
        }
    }
}

/// A cell's content before rows are chosen: the interval, the name, and the number.
type HeatPoint = (usize, String, f64);

/// Returns the heat map of an answer, in a range of times in microseconds since 1970.
///
/// # Errors
/// Fails if the answer has no times, or no numbers.
pub(super) fn heat_map(answer: &SqlAnswer, range: &Range<i64>) -> Result<AnswerHeatMap> {
    let columns = AnswerColumn::all(answer);
    let of_kind = |kind| AnswerColumn::of_kind(&columns, kind);
    let both = of_kind(ColumnKind::Time)
        .next()
        .zip(of_kind(ColumnKind::Number).next());
    let Some((time, number)) = both else {
        return Err(Error::Invalid(
            "a heat map needs a column of times and a column of numbers, as date_trunc('minute', time) \
             and COUNT(*)"
                .to_owned(),
        ));
    };
    let texts: Vec<_> = of_kind(ColumnKind::Text).collect();
    let times = answer.rows.iter().filter_map(|row| time.time(row)).collect();
    let grid = TimeGrid::within(times, range, MAX_COLUMNS).ok_or_else(no_time_in_range)?;
    let point = |row| {
        let interval = grid.interval(time.time(row)?)?;
        Some((interval, columns::labels(&texts, row), number.number(row)?))
    };
    let points: Vec<HeatPoint> = answer.rows.iter().filter_map(point).collect();
    let left_out = answer.rows.len() - points.len();
    let (rows, cells, more) = match texts.is_empty() {
        true => by_number(&points, grid.count),
        false => by_name(&points, grid.count),
    }
    .ok_or_else(no_number_in_range)?;
    let notes = [
        (more > 0).then(|| format!("The largest {MAX_NAMES} names are shown, and {more} more are not.")),
        (left_out > 0)
            .then(|| format!("Rows without a number or a time, or outside of the chosen time: {left_out}.")),
    ];
    Ok(AnswerHeatMap {
        grid,
        column: number.name.to_owned(),
        rows,
        columns: cells,
        notes: notes.into_iter().flatten().collect(),
    })
}

/// The rows, the cells, and the number of names that are not shown.
type HeatCells = (HeatRows, Vec<Vec<f64>>, usize);

/// Counts the numbers of each interval by their buckets. `None`: there are no numbers.
fn by_number(points: &[HeatPoint], intervals: usize) -> Option<HeatCells> {
    let values: Vec<f64> = points.iter().map(|(.., value)| *value).collect();
    let scale = ValueScale::new(&values, MAX_BUCKETS)?;
    let mut cells = vec![vec![0.0; scale.count()]; intervals];
    for (interval, _, value) in points {
        let cell = cells
            .get_mut(*interval)
            .and_then(|column| column.get_mut(scale.bucket(*value)));
        if let Some(cell) = cell {
            *cell += 1.0;
        }
    }
    Some((HeatRows::Numbers(scale), cells, 0))
}

/// Adds up the numbers of each interval by their names. `None`: there are no numbers.
fn by_name(points: &[HeatPoint], intervals: usize) -> Option<HeatCells> {
    let mut sums: HashMap<&str, f64> = HashMap::new();
    for (_, name, value) in points {
        let sum = sums.entry(name).or_default();
        *sum = finite(*sum + value.abs());
    }
    let mut names: Vec<(&str, f64)> = sums.into_iter().collect();
    names.sort_by(|(a, left), (b, right)| right.total_cmp(left).then_with(|| a.cmp(b)));
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let rows: HashMap<&str, usize> = names.iter().map(|(name, _)| *name).zip(0..).collect();
    let mut cells = vec![vec![0.0; names.len()]; intervals];
    for (interval, name, value) in points {
        let row = rows.get(name.as_str());
        let cell = row.and_then(|row| cells.get_mut(*interval)?.get_mut(*row));
        if let Some(cell) = cell {
            *cell = finite(*cell + value);
        }
    }
    let names: Vec<String> = names.into_iter().map(|(name, _)| name.to_owned()).collect();
    (!names.is_empty()).then_some((HeatRows::Names(names), cells, more))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use serde_json::json;

    const ALL: Range<i64> = i64::MIN..i64::MAX;
    const COLUMNS: [(&str, &str); 3] = [("at", "Timestamp(µs, \"UTC\")"), ("n", "Int64"), ("host", "Utf8")];

    fn row(minute: u64, host: &str, n: i64) -> serde_json::Value {
        json!({ "at": format!("2026-11-29T10:{minute:02}:00Z"), "host": host, "n": n })
    }

    #[test]
    fn numbers_are_counted_by_bucket() {
        let rows = vec![
            row(0, "", 5),
            row(0, "", 5),
            row(0, "", 7),
            row(1, "", 6),
            row(3, "", 6),
        ];
        let map = heat_map(&sample(&COLUMNS[..2], rows), &ALL).unwrap();
        assert_eq!(
            map.columns,
            [[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0; 3], [0.0, 1.0, 0.0]]
        );
        let HeatRows::Numbers(scale) = &map.rows else {
            panic!("{:?}", map.rows);
        };
        assert_eq!(
            (scale.bounds(0), scale.count(), map.rows.count()),
            ((5.0, 5.0), 3, 3)
        );
    }

    #[test]
    fn names_are_rows_with_sums() {
        let rows = vec![
            row(0, "b", 5),
            row(0, "b", 1),
            row(1, "a", 100),
            json!({ "at": "2026-11-29T10:00:00Z", "host": null, "n": -3 }),
            json!({ "at": "2026-11-29T10:00:00Z", "host": "a", "n": null }),
        ];
        let map = heat_map(&sample(&COLUMNS, rows), &ALL).unwrap();
        let names = ["a", "b", "NULL"].map(str::to_owned).to_vec();
        assert_eq!(map.rows, HeatRows::Names(names));
        assert_eq!(map.columns, [[0.0, 6.0, -3.0], [100.0, 0.0, 0.0]]);
        assert_eq!(map.notes.len(), 1);
    }

    #[test]
    fn many_names_and_times_are_bounded() {
        let values = [f64::MAX, -1.0];
        let rows = (0..10_000_usize).map(|number| {
            let value = values[number % 2];
            let time = format!(
                "2026-11-29T{:02}:{:02}:{:02}Z",
                number % 24,
                number % 60,
                number % 59
            );
            json!({ "at": time, "host": format!("\0<b>{number}"), "n": value })
        });
        let rows: Vec<_> = rows.collect();
        let map = heat_map(&sample(&COLUMNS, rows.clone()), &ALL).unwrap();
        assert_eq!((map.rows.count(), map.columns.len() <= 120), (MAX_NAMES, true));
        assert!(map.notes[0].contains("9950 more"), "{:?}", map.notes);
        let map = heat_map(&sample(&COLUMNS[..2], rows), &ALL).unwrap();
        assert_eq!(map.rows.count(), MAX_BUCKETS);
        assert_eq!(map.columns.iter().flatten().sum::<f64>(), 10_000.0);
    }

    #[test]
    fn answers_without_times_or_numbers_are_refused() {
        for columns in [&COLUMNS[..1], &COLUMNS[1..], &[]] {
            let error = heat_map(&sample(columns, Vec::new()), &ALL)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("a heat map needs"), "{error}");
        }
        assert!(heat_map(&sample(&COLUMNS, Vec::new()), &ALL).is_err());
        let nulls = vec![json!({ "at": "2026-11-29T10:00:00Z", "n": null })];
        assert!(heat_map(&sample(&COLUMNS[..2], nulls), &ALL).is_err());
    }
}
