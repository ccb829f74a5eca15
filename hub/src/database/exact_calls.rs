//! The functions of which stored bundles have complete calls.

use super::Database;
use crate::analysis::ExactCalls;
use crate::error::Result;
use crate::grouping::normalize;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};
use std::collections::BTreeMap;

/// The most rows that one statement inserts. SQLite binds at most 32 766 values.
const BATCH: usize = 500;
/// The columns of a row.
const COLUMNS: usize = 7;

/// A stored bundle with complete calls of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleCalls {
    /// The crash.
    pub crash: String,
    /// Its time.
    pub time: i64,
    /// Its host.
    pub host: String,
    /// Its service.
    pub service: String,
    /// Its build.
    pub build: String,
    /// The title of its group.
    pub title: String,
    /// The build id of the function's module.
    pub build_id: Option<String>,
    /// The first instruction of the newest call.
    pub position: String,
    /// The number of calls.
    pub calls: i64,
    /// The instructions of the newest call and its callees.
    pub instructions: i64,
    /// The duration of the newest call, in words. `None`: unknown.
    pub duration: Option<String>,
}

/// Stores the complete calls of a bundle, in place of those before. Functions whose names differ in
/// arguments or values of templates only count as one.
///
/// # Errors
/// Fails if the database fails.
pub async fn set(connection: &mut AnyConnection, report: &str, calls: &[ExactCalls]) -> Result<()> {
    sqlx::query("DELETE FROM exact_calls WHERE report = $1")
        .bind(report)
        .execute(&mut *connection)
        .await?;
    let mut functions: BTreeMap<(String, &str), ExactCalls> = BTreeMap::new();
    for found in calls {
        let build_id = found.build_id.as_deref().unwrap_or_default();
        let key = (normalize(&found.function), build_id);
        // The first one has the newest call.
        let known = functions.entry(key).or_insert_with(|| ExactCalls {
            calls: 0,
            ..found.clone()
        });
        known.calls = known.calls.saturating_add(found.calls);
    }
    let rows: Vec<_> = functions.into_iter().collect();
    for rows in rows.chunks(BATCH) {
        let values: Vec<String> = (0..rows.len())
            .map(|row| {
                let names: Vec<String> = (1..=COLUMNS)
                    .map(|at| format!("${}", row * COLUMNS + at))
                    .collect();
                format!("({})", names.join(", "))
            })
            .collect();
        let insert = format!(
            "INSERT INTO exact_calls (function, report, build_id, position, calls, instructions, duration) \
             VALUES {}",
            values.join(", ")
        );
        let mut query = sqlx::query(AssertSqlSafe(insert));
        for ((function, build_id), found) in rows {
            query = query
                .bind(function.clone())
                .bind(report.to_owned())
                .bind((*build_id).to_owned())
                .bind(found.position.clone())
                .bind(number(found.calls))
                .bind(number(found.instructions))
                .bind(found.duration.clone());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

impl Database {
    /// Returns the stored bundles with complete calls of a function, the newest crashes first. A
    /// build id selects one build of its module.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn exact_calls(
        &self,
        function: &str,
        build_id: Option<&str>,
        limit: i64,
    ) -> Result<Vec<BundleCalls>> {
        let select = "SELECT e.report, e.build_id, e.position, e.calls, e.instructions, e.duration, \
                      r.time, r.host, r.service, r.build, g.title \
                      FROM exact_calls e JOIN reports r ON r.id = e.report \
                      JOIN stack_keys k ON k.key = r.key JOIN groups g ON g.id = k.group_id \
                      WHERE e.function = $1 AND r.bundle = 'stored' AND ($2 = '' OR e.build_id = $2) \
                      ORDER BY r.time DESC, e.report, e.build_id LIMIT $3";
        let rows = sqlx::query(select)
            .bind(normalize(function))
            .bind(build_id.unwrap_or_default())
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &AnyRow) -> Result<BundleCalls> {
    let build_id: String = row.try_get("build_id")?;
    Ok(BundleCalls {
        crash: row.try_get("report")?,
        time: row.try_get("time")?,
        host: row.try_get("host")?,
        service: row.try_get("service")?,
        build: row.try_get("build")?,
        title: row.try_get("title")?,
        build_id: (!build_id.is_empty()).then_some(build_id),
        position: row.try_get("position")?,
        calls: row.try_get("calls")?,
        instructions: row.try_get("instructions")?,
        duration: row.try_get("duration")?,
    })
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
