//! The rows of the table `crashes` of queries in SQL.

use super::Database;
use crate::error::Result;
use crate::stack::Frame;
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::any::AnyRow;
use std::ops::Range;

/// A crash, with the names of the table's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SqlCrash {
    /// The id of the report.
    pub id: String,
    /// The time in nanoseconds since 1970.
    pub time: u64,
    /// The host.
    pub host: String,
    /// The service.
    pub service: String,
    /// The build of the service.
    pub build: String,
    /// The path of the executable.
    pub executable: String,
    /// The number of the signal.
    pub signal: i32,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The name of the thread.
    pub thread: Option<String>,
    /// The id of the crash group.
    pub group: Option<String>,
    /// The title of the crash group.
    pub title: Option<String>,
    /// The functions of the crashed thread, the innermost first.
    pub functions: Vec<String>,
}

impl Database {
    /// Returns the crashes of a time in microseconds since 1970, the newest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn sql_crashes(&self, times: &Range<i64>, most: i64) -> Result<Vec<SqlCrash>> {
        let select = "SELECT r.id, r.time, r.host, r.service, r.build, r.report, k.group_id, k.frames, g.title \
                      FROM reports r LEFT JOIN stack_keys k ON k.key = r.key \
                      LEFT JOIN groups g ON g.id = k.group_id \
                      WHERE r.time >= $1 AND r.time < $2 ORDER BY r.time DESC, r.id LIMIT $3";
        let rows = sqlx::query(select)
            .bind(times.start)
            .bind(times.end)
            .bind(most)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &AnyRow) -> Result<SqlCrash> {
    let report: String = row.try_get("report")?;
    // A damaged report has no further columns. `rebuild-index` repairs it.
    let report: Value = serde_json::from_str(&report).unwrap_or_default();
    let frames: Option<String> = row.try_get("frames")?;
    let frames: Vec<Frame> = frames
        .and_then(|frames| serde_json::from_str(&frames).ok())
        .unwrap_or_default();
    let number = |key: &str| report[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let time: i64 = row.try_get("time")?;
    let signal = report["signal"].as_i64();
    Ok(SqlCrash {
        id: row.try_get("id")?,
        time: time.unsigned_abs().saturating_mul(1000),
        host: row.try_get("host")?,
        service: row.try_get("service")?,
        build: row.try_get("build")?,
        executable: report["executable"].as_str().unwrap_or_default().to_owned(),
        signal: signal
            .and_then(|signal| i32::try_from(signal).ok())
            .unwrap_or_default(),
        pid: number("pid").unwrap_or_default(),
        tid: number("tid").unwrap_or_default(),
        thread: report["thread"].as_str().map(str::to_owned),
        group: row.try_get("group_id")?,
        title: row.try_get("title")?,
        functions: frames.into_iter().filter_map(|frame| frame.function).collect(),
    })
}
