//! The query for a heat map: columns of time, each divided into rows of less than a second.

use crate::limits::Coverage;
use crate::query::Query;
use crate::store::Store;
use crate::{Error, Result};
use backtrail_profile::UnixNanos;

/// Sums of weights by column and row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatMap {
    /// The start of the first column, a multiple of a column's length.
    pub start: UnixNanos,
    /// The length of a row in nanoseconds.
    pub step: u64,
    /// The number of rows of a column.
    pub rows: usize,
    /// The sums of weights of each column, the earliest row first.
    pub columns: Vec<Vec<i64>>,
}

impl Store {
    /// Returns the sums of weights by columns of `column` nanoseconds, each with `rows` rows.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the rows do not divide a column, and those of [`Store::series`].
    pub async fn heat_map(&self, query: &Query, column: u64, rows: u32) -> Result<(HeatMap, Coverage)> {
        let step = column.checked_div(u64::from(rows)).unwrap_or(0);
        if step == 0 || !column.is_multiple_of(u64::from(rows)) {
            let message = format!("{rows} rows do not divide a column of {column} ns; change their number");
            return Err(Error::Invalid(message));
        }
        let start = query.filter.time.start.0 / column * column;
        let (series, coverage) = self.series(query, step, &[]).await?;
        // The first row of the map is the start of a column.
        let skipped = usize::try_from((series.start.0 - start) / step).unwrap_or(0);
        let rows = usize::try_from(rows).unwrap_or(1);
        let mut cells = vec![0; skipped];
        cells.extend(
            series
                .groups
                .into_iter()
                .next()
                .map(|group| group.weights)
                .unwrap_or_default(),
        );
        cells.resize(cells.len().next_multiple_of(rows), 0);
        let heat_map = HeatMap {
            start: UnixNanos(start),
            step,
            rows,
            columns: cells.chunks(rows).map(<[i64]>::to_vec).collect(),
        };
        Ok((heat_map, coverage))
    }
}
