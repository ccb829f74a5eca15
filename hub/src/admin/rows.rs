//! Whole rows of tables as JSON lines, whatever their columns are: those that no object has.

use crate::database::{Database, transact};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Column, Row};
use std::fmt::Write as _;

/// Some rows of a table.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The table.
    pub table: &'static str,
    /// The condition of the rows, in SQL.
    pub filter: &'static str,
}

/// A row, and the table that it is of.
pub type TableRow = (&'static str, Map<String, Value>);

const fn rows(table: &'static str, filter: &'static str) -> Rows {
    Rows { table, filter }
}

/// Groups that a person resolved or archived, and whose reports retention removed. Without their
/// keys, a crash of the same kind would be new.
pub const SETTLED: [Rows; 5] = [
    rows("groups", "reports = 0"),
    rows("stack_keys", "reports = 0"),
    rows(
        "group_words",
        "group_id IN (SELECT id FROM groups WHERE reports = 0)",
    ),
    rows(
        "key_functions",
        "key IN (SELECT key FROM stack_keys WHERE reports = 0)",
    ),
    rows(
        "missing_symbols",
        "key IN (SELECT key FROM stack_keys WHERE reports = 0)",
    ),
];

/// Work that a sender knows of: uploads, what is to be done with them, and stored profiles. The
/// results of jobs and the requests for profiles follow.
pub const WORK: [Rows; 11] = [
    rows("uploads", "1 = 1"),
    rows("upload_parts", "1 = 1"),
    rows("jobs", "1 = 1"),
    rows("chunks", "1 = 1"),
    rows("assemblies", "1 = 1"),
    rows("reservations", "1 = 1"),
    rows("profile_segments", "1 = 1"),
    rows("profile_pushes", "1 = 1"),
    rows("profile_agents", "1 = 1"),
    rows("profile_requests", "1 = 1"),
    // Nothing ends a run that the old index saw running.
    rows("query_job_runs", "state <> 'running'"),
];

/// Groups that are not announced yet.
pub const ANNOUNCEMENTS: [Rows; 1] = [rows("jobs", "kind = 'announce'")];

/// Returns rows as JSON lines. Columns without a value are left out.
///
/// # Errors
/// Fails if the database fails.
pub async fn export(database: &Database, tables: &[Rows]) -> Result<String> {
    let mut lines = String::new();
    for Rows { table, filter } in tables {
        let select = format!("SELECT * FROM {table} WHERE {filter} ORDER BY 1, 2");
        let found = sqlx::query(AssertSqlSafe(select))
            .fetch_all(database.reader())
            .await?;
        for row in found {
            let line = serde_json::json!({ "rows": table, "row": values(&row)? });
            let _ = writeln!(lines, "{line}");
        }
    }
    Ok(lines)
}

/// Returns the columns of a row that have a value. All are texts or whole numbers.
fn values(row: &AnyRow) -> Result<Map<String, Value>> {
    let mut values = Map::new();
    for column in row.columns() {
        let at = column.ordinal();
        let value: Value = match row.try_get::<Option<i64>, _>(at) {
            Ok(number) => number.into(),
            Err(_) => row.try_get::<Option<String>, _>(at)?.into(),
        };
        if !value.is_null() {
            values.insert(column.name().to_owned(), value);
        }
    }
    Ok(values)
}

/// Returns the table and the values of a line. `None`: the line is of another kind.
///
/// # Errors
/// Fails if the line is of this kind, but names another table or an impossible column.
pub fn read(line: &mut Value) -> Result<Option<TableRow>> {
    let malformed = || Error::Invalid("the row of a table is malformed".to_owned());
    let Some(name) = line["rows"].as_str() else {
        return Ok(None);
    };
    let mut tables = SETTLED.iter().chain(&WORK);
    let table = tables
        .find(|rows| rows.table == name)
        .ok_or_else(malformed)?
        .table;
    let Value::Object(row) = line["row"].take() else {
        return Err(malformed());
    };
    let is_name = |name: &String| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    let is_value = |value: &Value| value.is_string() || value.is_i64();
    if row.is_empty() || !row.keys().all(is_name) || !row.values().all(is_value) {
        return Err(malformed());
    }
    Ok(Some((table, row)))
}

/// Adds a row, unless there is one with its key.
///
/// # Errors
/// Fails if the database fails, or has no such column.
pub async fn insert(connection: &mut AnyConnection, table: &str, row: &Map<String, Value>) -> Result<()> {
    let columns: Vec<_> = row.keys().map(String::as_str).collect();
    let places: Vec<_> = (1..=row.len()).map(|at| format!("${at}")).collect();
    let (columns, places) = (columns.join(", "), places.join(", "));
    let insert = format!("INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING");
    let mut query = sqlx::query(AssertSqlSafe(insert));
    for value in row.values() {
        query = match value.as_i64() {
            Some(number) => query.bind(number),
            None => query.bind(value.as_str().map(str::to_owned)),
        };
    }
    query.execute(&mut *connection).await?;
    Ok(())
}

/// Puts the uploads and jobs of an earlier index into a new one. Bundles that wait for their check
/// are marked so.
///
/// # Errors
/// Fails if a line is malformed or the database fails.
pub async fn import_work(database: &Database, lines: &str) -> Result<()> {
    let malformed = || Error::Invalid("the uploads of the old index are malformed".to_owned());
    let mut rows = Vec::new();
    for line in lines.lines() {
        let mut value: Value = serde_json::from_str(line).map_err(|_| malformed())?;
        rows.push(read(&mut value).ok().flatten().ok_or_else(malformed)?);
    }
    transact!(database, connection => {
        for (table, row) in &rows {
            insert(connection, table, row).await?;
        }
        mark_checking(connection).await
    })
}

/// Marks reports whose whole bundle has arrived, and was not checked yet.
///
/// # Errors
/// Fails if the database fails.
pub async fn mark_checking(connection: &mut AnyConnection) -> Result<()> {
    let update = "UPDATE reports SET bundle = 'checking', bundle_until = NULL WHERE bundle <> 'stored' AND id IN \
                  (SELECT subject FROM uploads WHERE kind = 'bundle' AND state = 'complete')";
    sqlx::query(update).execute(&mut *connection).await?;
    Ok(())
}

/// Forgets uploads and their jobs: a backup has no parts of uploads. Their senders begin again.
///
/// # Errors
/// Fails if the database fails.
pub async fn forget_work(database: &Database) -> Result<()> {
    transact!(database, connection => {
        for statement in [
            "UPDATE reports SET bundle = 'none', bundle_until = NULL WHERE bundle = 'checking'",
            "DELETE FROM jobs WHERE kind IN ('accept', 'assemble')",
            "DELETE FROM uploads",
            "DELETE FROM upload_parts",
            "DELETE FROM chunks",
            "DELETE FROM assemblies",
            "DELETE FROM reservations",
        ] {
            sqlx::query(statement).execute(&mut *connection).await?;
        }
        Ok(())
    })
}
