//! The table of crashes, whose rows are in the request.

use super::schema::time;
use crate::request::Crash;
use datafusion::arrow::array::{
    ArrayRef, Int32Array, ListBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
    UInt32Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use std::sync::Arc;

/// Builds the table of crashes.
pub(crate) fn crashes(crashes: &[Crash]) -> Result<Arc<dyn TableProvider>> {
    let text = |get: fn(&Crash) -> Option<&str>| -> ArrayRef {
        Arc::new(crashes.iter().map(get).collect::<StringArray>())
    };
    let number = |get: fn(&Crash) -> u32| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(crashes.iter().map(get)))
    };
    let times: TimestampMicrosecondArray = crashes
        .iter()
        .map(|crash| i64::try_from(crash.time / 1000).ok())
        .collect();
    let signals = Int32Array::from_iter_values(crashes.iter().map(|crash| crash.signal));
    let mut functions = ListBuilder::new(StringBuilder::new());
    for crash in crashes {
        functions.append_value(crash.functions.iter().map(Some));
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", text(|crash| Some(&crash.id))),
        ("time", Arc::new(times.with_timezone("UTC"))),
        ("host", text(|crash| Some(&crash.host))),
        ("service", text(|crash| Some(&crash.service))),
        ("build", text(|crash| Some(&crash.build))),
        ("executable", text(|crash| Some(&crash.executable))),
        ("signal", Arc::new(signals)),
        ("pid", number(|crash| crash.pid)),
        ("tid", number(|crash| crash.tid)),
        ("thread", text(|crash| crash.thread.as_deref())),
        ("group_id", text(|crash| crash.group.as_deref())),
        ("title", text(|crash| crash.title.as_deref())),
        ("functions", Arc::new(functions.finish())),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| match *name {
            "time" => Field::new(*name, time(), true),
            _ => Field::new(*name, DataType::clone(column.data_type()), true),
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    #[tokio::test]
    async fn crashes_of_a_group_are_counted() {
        let crash = |group: Option<&str>| Crash {
            group: group.map(Into::into),
            time: 1_795_945_723_000_000_000,
            functions: vec!["parse".into(), "main".into()],
            ..Crash::default()
        };
        let context = SessionContext::new();
        let table = crashes(&[crash(Some("a")), crash(None), crash(Some("a"))]).unwrap();
        context.register_table("crashes", table).unwrap();
        let query = "SELECT count(*) FROM crashes WHERE group_id = 'a' AND functions[1] = 'parse'
            AND time > '2026-11-29T00:00:00Z'";
        let rows = context.sql(query).await.unwrap().collect().await.unwrap();
        let count = rows[0].column(0);
        assert_eq!(
            datafusion::arrow::array::AsArray::as_primitive::<datafusion::arrow::datatypes::Int64Type>(count)
                .value(0),
            2
        );
    }
}
