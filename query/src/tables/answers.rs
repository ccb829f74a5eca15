//! The table `answers`: rows of other queries, which are in the request.

use crate::request::{Answers, GivenColumn};
use crate::{Error, Result};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::json::ReaderBuilder;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Builds the table of given rows.
///
/// # Errors
/// Fails if a value is not of the type of its column.
pub(crate) fn answers(answers: Answers) -> Result<Arc<dyn TableProvider>> {
    let malformed = |reason: String| Error::Request(format!("the table answers: {reason}"));
    let Answers { columns, mut rows } = answers;
    let kinds: Vec<DataType> = columns.iter().map(kind_of).collect();
    let texts = columns
        .iter()
        .zip(&kinds)
        .filter(|(_, kind)| **kind == DataType::Utf8);
    let texts: Vec<&str> = texts.map(|(column, _)| column.name.as_str()).collect();
    for row in &mut rows {
        write_texts(row, &texts);
    }
    let fields = columns.iter().zip(kinds);
    let fields: Vec<Field> = fields
        .map(|(column, kind)| Field::new(&column.name, kind, true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let failed =
        |error: datafusion::arrow::error::ArrowError| malformed(crate::error::sentence(&error.to_string()));
    let mut decoder = ReaderBuilder::new(Arc::clone(&schema))
        .with_batch_size(rows.len().max(1))
        .build_decoder()
        .map_err(failed)?;
    decoder.serialize(&rows).map_err(failed)?;
    let batch = decoder.flush().map_err(failed)?;
    let table = MemTable::try_new(schema, vec![batch.into_iter().collect()]);
    let table = table.map_err(|error| malformed(crate::error::sentence(&error.message())))?;
    Ok(Arc::new(table))
}

/// Returns the type of a column that rows in JSON keep. All others are texts.
fn kind_of(column: &GivenColumn) -> DataType {
    let kind = column.kind.parse().unwrap_or(DataType::Utf8);
    let kind = match kind {
        DataType::Dictionary(_, value) => *value,
        kind => kind,
    };
    match kind {
        DataType::Float16 | DataType::Float32 => DataType::Float64,
        kind if kind.is_numeric() => kind,
        kind @ (DataType::Boolean | DataType::Timestamp(..) | DataType::Date32) => kind,
        _ => DataType::Utf8,
    }
}

/// Turns the values of columns of texts into texts.
fn write_texts(row: &mut Map<String, Value>, texts: &[&str]) {
    for name in texts {
        match row.get_mut(*name) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(value) => *value = Value::String(value.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;
    use serde_json::json;

    fn given(columns: &[(&str, &str)], rows: Value) -> Answers {
        let columns = columns.iter().map(|(name, kind)| GivenColumn {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
        });
        Answers {
            columns: columns.collect(),
            rows: serde_json::from_value(rows).unwrap(),
        }
    }

    async fn table(given: Answers, sql: &str) -> String {
        let context = SessionContext::new();
        context
            .register_table("answers", answers(given).unwrap())
            .unwrap();
        let rows = context.sql(sql).await.unwrap().collect().await.unwrap();
        pretty_format_batches(&rows).unwrap().to_string()
    }

    #[tokio::test]
    async fn rows_of_sites_are_summed() {
        let columns = [
            ("site", "Utf8"),
            ("service", "Dictionary(Int32, Utf8)"),
            ("seconds", "Float64"),
            ("n", "Int64"),
            ("at", "Timestamp(ns, \"UTC\")"),
            ("functions", "List(Utf8)"),
        ];
        let row = |site: &str, seconds: Value, n: i64| {
            json!({ "site": site, "service": "api", "seconds": seconds, "n": n,
                "at": "2026-11-29T10:00:00Z", "functions": ["a", "b"] })
        };
        let rows = json!([
            row("a", json!(1.5), i64::MAX),
            row("b", json!(2), 0),
            row("c", json!(null), -1)
        ]);
        let sql = "SELECT service, sum(seconds) AS s, max(n) AS n, min(functions) AS f, \
            count(*) FILTER (WHERE at < '2026-11-29T10:00:01Z') AS early FROM answers GROUP BY service";
        let shown = table(given(&columns, rows), sql).await;
        assert!(
            shown.contains("| api     | 3.5 | 9223372036854775807 | [\"a\",\"b\"] | 3     |"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn no_rows_are_an_empty_table() {
        let shown = table(
            given(&[("n", "UInt8")], json!([])),
            "SELECT count(*) AS c, sum(n) FROM answers",
        )
        .await;
        assert!(shown.contains("| 0 "), "{shown}");
    }

    #[test]
    fn values_of_other_types_are_refused() {
        for (kind, value) in [
            ("Int64", json!("x")),
            ("Boolean", json!(3)),
            ("Float64", json!([1])),
        ] {
            let error = answers(given(&[("a", kind)], json!([{ "a": value }]))).unwrap_err();
            assert!(error.to_string().contains("table answers"), "{error}");
        }
        // Columns without a known type have texts.
        for kind in ["", "Utf8", "Struct(", "Map(x)", "Interval(DayTime)"] {
            assert!(
                answers(given(&[("a", kind)], json!([{ "a": { "b": 1 } }]))).is_ok(),
                "{kind}"
            );
        }
    }
}
