//! Shares of hosts per hour, for escalation, and the groups whose state depends on time.

use super::Database;
use super::groups::GroupRow;
use crate::clock::{DAY, HOUR};
use crate::error::Result;
use sqlx::AnyConnection;
use sqlx::Row;
use std::collections::HashMap;

/// The most groups of one tick.
const MAX_GROUPS: i64 = 5000;

impl Database {
    /// Returns the groups with crashes since a time, and those whose state may end by itself.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn groups_in_motion(&self, now: i64, since: i64) -> Result<Vec<GroupRow>> {
        let select = "SELECT * FROM groups WHERE last_seen >= $1 OR state IN ('archived', 'escalating') \
                      OR (state IN ('new', 'regressed') AND state_since < $2) ORDER BY last_seen DESC LIMIT $3";
        let rows = sqlx::query(select)
            .bind(since)
            .bind(now - 7 * DAY)
            .bind(MAX_GROUPS)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(GroupRow::read).collect()
    }

    /// Returns the hosts that ran a service, as the hours of their first and their last run.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn host_hours(&self, service: &str) -> Result<Vec<(i64, i64)>> {
        let select = "SELECT MIN(first_ran) / $1 AS first_hour, MAX(last_ran) / $1 AS last_hour \
                      FROM host_builds WHERE service = $2 GROUP BY host";
        let rows = sqlx::query(select)
            .bind(HOUR)
            .bind(service)
            .fetch_all(self.reader())
            .await?;
        rows.iter()
            .map(|row| Ok((row.try_get("first_hour")?, row.try_get("last_hour")?)))
            .collect()
    }
}

/// Returns the number of hosts with a crash of a group by hour, from an hour on.
///
/// # Errors
/// Fails if the database fails.
pub async fn crashed_hosts(
    connection: &mut AnyConnection,
    group: &str,
    first: i64,
) -> Result<HashMap<i64, u64>> {
    let select = "SELECT r.time / $1 AS hour, COUNT(DISTINCT r.host) AS hosts FROM stack_keys k \
                  JOIN reports r ON r.key = k.key WHERE k.group_id = $2 AND r.time >= $3 GROUP BY r.time / $1";
    let rows = sqlx::query(select)
        .bind(HOUR)
        .bind(group)
        .bind(first * HOUR)
        .fetch_all(&mut *connection)
        .await?;
    rows.iter()
        .map(|row| {
            let hosts: i64 = row.try_get("hosts")?;
            Ok((row.try_get("hour")?, hosts.unsigned_abs()))
        })
        .collect()
}

/// Returns the build of most crashes of a group in an hour.
///
/// # Errors
/// Fails if the database fails.
pub async fn main_build(connection: &mut AnyConnection, group: &str, hour: i64) -> Result<Option<String>> {
    let select = "SELECT build FROM group_hours WHERE group_id = $1 AND hour = $2 \
                  ORDER BY reports DESC, build LIMIT 1";
    Ok(sqlx::query_scalar(select)
        .bind(group)
        .bind(hour)
        .fetch_optional(&mut *connection)
        .await?)
}
