//! The columns of the tables, as queries see them.

use crate::segment::{day, hour_of_day};
use backtrail_store::{Hour, TableKind};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

fn column(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

fn optional(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

/// Returns a column of texts.
fn text(name: &str) -> Field {
    column(name, DataType::Utf8View)
}

/// Returns the type of times.
pub(super) fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Returns the type of the column `lines`.
fn lines() -> DataType {
    let line = Fields::from(vec![
        column("function", DataType::Utf8),
        column("linkage_name", DataType::Utf8),
        optional("file", DataType::Utf8),
        column("start_line", DataType::UInt32),
        column("line", DataType::UInt32),
    ]);
    DataType::List(Arc::new(column("element", DataType::Struct(line))))
}

/// Returns the type of the column `labels`.
fn labels() -> DataType {
    let label = Fields::from(vec![
        column("key", DataType::Utf8),
        column("value", DataType::Utf8),
    ]);
    DataType::Map(Arc::new(column("key_value", DataType::Struct(label))), false)
}

/// Returns the columns of a table's files.
pub(super) fn file_columns(kind: TableKind) -> SchemaRef {
    let fields = match kind {
        TableKind::Samples => vec![
            text("segment"),
            column("time", time()),
            text("service"),
            text("host"),
            text("build"),
            text("region"),
            text("language"),
            text("event"),
            text("unit"),
            column("period", DataType::UInt64),
            optional("pid", DataType::UInt32),
            optional("process", DataType::Utf8View),
            optional("tid", DataType::UInt32),
            optional("thread", DataType::Utf8View),
            optional("cpu", DataType::UInt32),
            column("weight", DataType::Int64),
            column("stack", DataType::UInt32),
            column("context", DataType::UInt32),
        ],
        TableKind::Stacks => vec![
            text("segment"),
            column("stack", DataType::UInt32),
            column(
                "frames",
                DataType::List(Arc::new(column("element", DataType::UInt32))),
            ),
        ],
        TableKind::Frames => vec![
            text("segment"),
            column("frame", DataType::UInt32),
            text("frame_kind"),
            optional("build_id", DataType::Binary),
            optional("module", DataType::Utf8),
            optional("offset", DataType::UInt64),
            column("lines", lines()),
        ],
        TableKind::Contexts => vec![
            text("segment"),
            column("context", DataType::UInt32),
            column("labels", labels()),
        ],
    };
    Arc::new(Schema::new(fields))
}

/// Returns the columns that come from the names of folders.
pub(super) fn partition_columns() -> Vec<FieldRef> {
    vec![
        Arc::new(column("date", DataType::Date32)),
        Arc::new(column("hour", DataType::Int32)),
    ]
}

/// Returns the values of [`partition_columns`].
pub(super) fn partition_values(hour: Hour) -> Vec<ScalarValue> {
    vec![
        ScalarValue::Date32(Some(day(hour))),
        ScalarValue::Int32(Some(hour_of_day(hour))),
    ]
}
