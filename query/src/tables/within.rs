//! The samples of a time. Segments have whole hours.

use super::SegmentTable;
use crate::request::Times;
use datafusion::datasource::TableProvider;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// Returns the rows of a table whose time is in a range. Times of samples are microseconds, so that
/// those of the range are at or after its start.
pub(crate) fn within(
    context: &SessionContext,
    table: Arc<SegmentTable>,
    times: &Times,
) -> Result<Arc<dyn TableProvider>> {
    let time = |nanoseconds: u64| -> Expr {
        let micros = i64::try_from(nanoseconds.div_ceil(1000)).unwrap_or(i64::MAX);
        lit(ScalarValue::TimestampMicrosecond(
            Some(micros),
            Some("UTC".into()),
        ))
    };
    let is_within = col("time")
        .gt_eq(time(times.start))
        .and(col("time").lt(time(times.end)));
    Ok(context.read_table(table)?.filter(is_within)?.into_view())
}
