//! The plan of a row group: the columns that its statistics do not decide.

use super::segment::SegmentScan;
use crate::Result;
use crate::file::FetchedGroup;
use crate::filter::{Column, Condition};
use crate::schema::SampleColumn;
use object_store::ObjectStore;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

/// The plan of a row group.
pub(crate) struct GroupPlan {
    /// The index of the row group.
    pub(super) group: usize,
    /// The number of rows.
    pub(super) rows: u64,
    /// The bytes that are read.
    pub(super) bytes: u64,
    /// The columns that are read.
    pub(super) columns: Vec<SampleColumn>,
    /// The conditions that rows may fail, by index.
    pub(super) matchers: Vec<usize>,
    /// Whether rows may be outside the time.
    pub(super) checks_time: bool,
    /// Whether rows may have contexts that do not match.
    pub(super) checks_contexts: bool,
    /// The text of each grouping column that has one in all rows.
    pub(super) constants: Vec<Option<Box<str>>>,
}

impl GroupPlan {
    /// Returns the plan of a row group, or `None` if no row can match.
    pub(super) fn new(segment: &SegmentScan, group: usize) -> Option<Self> {
        let scan = &segment.scan;
        let metadata = segment.file.group(group)?;
        let checks_time = match times(metadata) {
            Some((first, last)) => {
                let (start, end) = (scan.filter.time.start.0, scan.filter.time.end.0);
                if last < start || end <= first {
                    return None;
                }
                first < start || end <= last
            }
            None => true,
        };
        let mut matchers = Vec::new();
        for (index, matcher) in scan.filter.matchers.iter().enumerate() {
            if matches!(matcher.column, Column::Label(_)) {
                continue;
            }
            match decide(metadata, matcher.column.sample_column(), &matcher.condition) {
                Some(false) => return None,
                Some(true) => {}
                None => matchers.push(index),
            }
        }
        let is_none = |matches: &Option<Vec<bool>>| matches.as_ref().is_some_and(|all| !all.contains(&true));
        if is_none(&segment.contexts) || is_none(&segment.stacks) {
            return None;
        }
        let constants: Vec<_> = scan
            .group_by
            .iter()
            .map(|column| match column {
                Column::Label(_) => None,
                column => constant(metadata, column.sample_column()),
            })
            .collect();
        let checks_contexts = segment.contexts.is_some();
        let mut columns = Vec::new();
        let needs = scan.needs;
        columns.extend((needs.time || checks_time).then_some(SampleColumn::Time));
        columns.extend(needs.weight.then_some(SampleColumn::Weight));
        columns.extend((needs.stack || segment.stacks.is_some()).then_some(SampleColumn::Stack));
        columns.extend(checks_contexts.then_some(SampleColumn::Context));
        let matched = matchers
            .iter()
            .filter_map(|index| scan.filter.matchers.get(*index));
        columns.extend(matched.map(|matcher| matcher.column.sample_column()));
        let grouped = scan.group_by.iter().zip(&constants);
        columns.extend(
            grouped
                .filter(|(_, text)| text.is_none())
                .map(|(column, _)| column.sample_column()),
        );
        columns.sort_unstable();
        columns.dedup();
        let indexes: Vec<usize> = columns.iter().map(|column| column.index()).collect();
        Some(Self {
            group,
            rows: u64::try_from(metadata.num_rows()).unwrap_or(0),
            bytes: segment.file.bytes_of(group, &indexes).0,
            columns,
            matchers,
            checks_time,
            checks_contexts,
            constants,
        })
    }

    /// Fetches the columns of the row group.
    pub(super) async fn fetch(
        &self,
        segment: &SegmentScan,
        objects: &dyn ObjectStore,
    ) -> Result<FetchedGroup> {
        let columns: Vec<usize> = self.columns.iter().map(|column| column.index()).collect();
        segment.file.fetch(objects, self.group, &columns).await
    }
}

fn statistics(metadata: &RowGroupMetaData, column: SampleColumn) -> Option<&Statistics> {
    metadata.columns().get(column.index())?.statistics()
}

/// Returns the first and the last time of a row group in nanoseconds.
fn times(metadata: &RowGroupMetaData) -> Option<(u64, u64)> {
    match statistics(metadata, SampleColumn::Time)? {
        Statistics::Int64(times) => {
            let time = |time: Option<&i64>| u64::try_from(*time?).ok()?.checked_mul(1000);
            Some((time(times.min_opt())?, time(times.max_opt())?))
        }
        _ => None,
    }
}

/// Returns the text that a column has in all rows.
fn constant(metadata: &RowGroupMetaData, column: SampleColumn) -> Option<Box<str>> {
    let statistics = statistics(metadata, column)?;
    let nulls = statistics.null_count_opt()?;
    if nulls > 0 {
        let rows = u64::try_from(metadata.num_rows()).ok()?;
        return (nulls == rows).then(Box::default);
    }
    match statistics {
        Statistics::Int32(numbers) => {
            let number = *numbers.min_opt()?;
            // The column's numbers are unsigned.
            (number == *numbers.max_opt()?).then(|| number.cast_unsigned().to_string().into())
        }
        Statistics::Int64(numbers) => {
            let number = *numbers.min_opt()?;
            (number == *numbers.max_opt()?).then(|| number.cast_unsigned().to_string().into())
        }
        Statistics::ByteArray(texts) if statistics.min_is_exact() && statistics.max_is_exact() => {
            let text = texts.min_opt()?;
            let is_constant = text == texts.max_opt()?;
            let text = std::str::from_utf8(text.data()).ok()?;
            is_constant.then(|| text.into())
        }
        _ => None,
    }
}

/// Returns whether all rows or none fulfill a condition, if the statistics decide it.
fn decide(metadata: &RowGroupMetaData, column: SampleColumn, condition: &Condition) -> Option<bool> {
    if let Some(text) = constant(metadata, column) {
        return Some(condition.holds(&text));
    }
    let Condition::In(texts) = condition else {
        return None;
    };
    let Statistics::ByteArray(range) = statistics(metadata, column)? else {
        return None;
    };
    let (first, last) = (range.min_opt()?.data(), range.max_opt()?.data());
    let has_nulls = range.null_count_opt() != Some(0);
    let may_be = |text: &String| match text.is_empty() && has_nulls {
        true => true,
        false => (first..=last).contains(&text.as_bytes()),
    };
    (!texts.iter().any(may_be)).then_some(false)
}
