//! Stack keys: crashes at the same addresses. Counts belong to keys, and keys to groups.

use super::tokens::new_id;
use crate::clock::HOUR;
use crate::error::{Error, Result};
use crate::stack::Frame;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;

/// A stack key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackKey {
    /// The key.
    pub key: String,
    /// The service.
    pub service: String,
    /// The signal.
    pub signal: i64,
    /// The group that the key belongs to.
    pub group: String,
    /// The frames by address, of the first report.
    pub addresses: Vec<Frame>,
    /// The frames with symbols, of the last analysis.
    pub frames: Option<Vec<Frame>>,
    /// The cause, of the last analysis, as JSON.
    pub cause: Option<String>,
    /// The cause, of the first report, as JSON.
    pub report_cause: Option<String>,
    /// The number of reports.
    pub reports: i64,
}

impl StackKey {
    pub(super) fn read(row: &AnyRow) -> Result<Self> {
        let addresses: String = row.try_get("addresses")?;
        let frames: Option<String> = row.try_get("frames")?;
        let key: String = row.try_get("key")?;
        let damaged = |error| {
            Error::Conflict(format!(
                "the row of stack key {key} is damaged: {error}; run rebuild-index"
            ))
        };
        Ok(Self {
            service: row.try_get("service")?,
            signal: row.try_get("signal")?,
            group: row.try_get("group_id")?,
            addresses: serde_json::from_str(&addresses).map_err(damaged)?,
            frames: frames
                .as_deref()
                .map(serde_json::from_str)
                .transpose()
                .map_err(damaged)?,
            cause: row.try_get("cause")?,
            report_cause: row.try_get("report_cause")?,
            reports: row.try_get("reports")?,
            key,
        })
    }
}

/// A report's effect on the series of its key and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesChange {
    /// Whether the host is new to the group.
    pub is_new_host: bool,
    /// Whether the build is new to the group.
    pub is_new_build: bool,
}

/// Counts a report of a known key. Returns the group, and whether a bundle of the key was analyzed.
/// `None`: the key is unknown.
///
/// # Errors
/// Fails if the database fails.
pub async fn count(connection: &mut AnyConnection, key: &str, time: i64) -> Result<Option<(String, bool)>> {
    let update = "UPDATE stack_keys SET reports = reports + 1, \
                  first_seen = CASE WHEN first_seen > $1 THEN $1 ELSE first_seen END, \
                  last_seen = CASE WHEN last_seen < $1 THEN $1 ELSE last_seen END \
                  WHERE key = $2 \
                  RETURNING group_id, CAST(CASE WHEN frames IS NULL THEN 0 ELSE 1 END AS BIGINT) AS analyzed";
    let row = sqlx::query(update)
        .bind(time)
        .bind(key)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let analyzed: i64 = row.try_get("analyzed")?;
    Ok(Some((row.try_get("group_id")?, analyzed != 0)))
}

/// Adds a key with its first report. Returns `false` if another hub added it in between.
///
/// # Errors
/// Fails if the database fails.
pub async fn insert(connection: &mut AnyConnection, key: &StackKey, time: i64) -> Result<bool> {
    let insert = "INSERT INTO stack_keys (key, service, signal, group_id, addresses, report_cause, first_seen, last_seen, \
                  reports) VALUES ($1, $2, $3, $4, $5, $6, $7, $7, 1) ON CONFLICT (key) DO NOTHING";
    let addresses = serde_json::to_string(&key.addresses).unwrap_or_default();
    let done = sqlx::query(insert)
        .bind(&key.key)
        .bind(&key.service)
        .bind(key.signal)
        .bind(&key.group)
        .bind(addresses)
        .bind(key.report_cause.as_deref())
        .bind(time)
        .execute(&mut *connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Counts a report in its hour, and of its host, for the key and for the group. Returns whether
/// its host and its build are new to the group.
///
/// # Errors
/// Fails if the database fails.
pub async fn count_in_series(
    connection: &mut AnyConnection,
    key: &str,
    group: &str,
    build: &str,
    host: &str,
    time: i64,
) -> Result<SeriesChange> {
    let hour = time.div_euclid(HOUR);
    sqlx::query(
        "INSERT INTO key_hours (key, build, hour, reports) VALUES ($1, $2, $3, 1) \
         ON CONFLICT (key, build, hour) DO UPDATE SET reports = key_hours.reports + 1",
    )
    .bind(key)
    .bind(build)
    .bind(hour)
    .execute(&mut *connection)
    .await?;
    let in_hour: i64 = sqlx::query_scalar(
        "INSERT INTO group_hours (group_id, build, hour, reports) VALUES ($1, $2, $3, 1) \
         ON CONFLICT (group_id, build, hour) DO UPDATE SET reports = group_hours.reports + 1 \
         RETURNING reports",
    )
    .bind(group)
    .bind(build)
    .bind(hour)
    .fetch_one(&mut *connection)
    .await?;
    let is_new_build = in_hour == 1 && !has_other_hour(connection, group, build, hour).await?;
    sqlx::query(
        "INSERT INTO key_hosts (key, host, reports, last_seen) VALUES ($1, $2, 1, $3) \
         ON CONFLICT (key, host) DO UPDATE SET reports = key_hosts.reports + 1, \
         last_seen = CASE WHEN key_hosts.last_seen < $3 THEN $3 ELSE key_hosts.last_seen END",
    )
    .bind(key)
    .bind(host)
    .bind(time)
    .execute(&mut *connection)
    .await?;
    let reports: i64 = sqlx::query_scalar(
        "INSERT INTO group_hosts (group_id, host, reports, last_seen) VALUES ($1, $2, 1, $3) \
         ON CONFLICT (group_id, host) DO UPDATE SET reports = group_hosts.reports + 1, \
         last_seen = CASE WHEN group_hosts.last_seen < $3 THEN $3 ELSE group_hosts.last_seen END \
         RETURNING reports",
    )
    .bind(group)
    .bind(host)
    .bind(time)
    .fetch_one(&mut *connection)
    .await?;
    Ok(SeriesChange {
        is_new_host: reports == 1,
        is_new_build,
    })
}

/// Returns whether a group has reports of a build in another hour.
async fn has_other_hour(connection: &mut AnyConnection, group: &str, build: &str, hour: i64) -> Result<bool> {
    let select = "SELECT hour FROM group_hours WHERE group_id = $1 AND build = $2 AND hour <> $3 LIMIT 1";
    let found: Option<i64> = sqlx::query_scalar(select)
        .bind(group)
        .bind(build)
        .bind(hour)
        .fetch_optional(&mut *connection)
        .await?;
    Ok(found.is_some())
}

/// Returns the builds of a key's reports.
///
/// # Errors
/// Fails if the database fails.
pub async fn builds(connection: &mut AnyConnection, key: &str) -> Result<Vec<String>> {
    let select = "SELECT DISTINCT build FROM key_hours WHERE key = $1 ORDER BY build LIMIT 2000";
    Ok(sqlx::query_scalar(select)
        .bind(key)
        .fetch_all(&mut *connection)
        .await?)
}

/// Returns a key.
///
/// # Errors
/// Fails if the database fails.
pub async fn find(connection: &mut AnyConnection, key: &str) -> Result<Option<StackKey>> {
    let found = sqlx::query("SELECT * FROM stack_keys WHERE key = $1")
        .bind(key)
        .fetch_optional(&mut *connection)
        .await?;
    found.as_ref().map(StackKey::read).transpose()
}

/// Returns the keys of a group, those with most reports first.
///
/// # Errors
/// Fails if the database fails.
pub async fn of_group(connection: &mut AnyConnection, group: &str, limit: i64) -> Result<Vec<StackKey>> {
    let rows =
        sqlx::query("SELECT * FROM stack_keys WHERE group_id = $1 ORDER BY reports DESC, key LIMIT $2")
            .bind(group)
            .bind(limit)
            .fetch_all(&mut *connection)
            .await?;
    rows.iter().map(StackKey::read).collect()
}

/// Returns the keys after `after`, in their order, for work over all of them.
///
/// # Errors
/// Fails if the database fails.
pub async fn after(connection: &mut AnyConnection, after: &str, limit: i64) -> Result<Vec<StackKey>> {
    let rows = sqlx::query("SELECT * FROM stack_keys WHERE key > $1 ORDER BY key LIMIT $2")
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *connection)
        .await?;
    rows.iter().map(StackKey::read).collect()
}

/// Returns the keys after `after`, each with the title of its group, of a service or of all.
///
/// # Errors
/// Fails if the database fails.
pub async fn with_titles(
    connection: &mut AnyConnection,
    service: Option<&str>,
    after: &str,
    limit: i64,
) -> Result<Vec<(StackKey, String)>> {
    let select = "SELECT k.*, g.title AS group_title FROM stack_keys k JOIN groups g ON g.id = k.group_id \
                  WHERE k.key > $1 AND (k.service = $2 OR $3 = 1) ORDER BY k.key LIMIT $4";
    let rows = sqlx::query(select)
        .bind(after)
        .bind(service.unwrap_or_default())
        .bind(i64::from(service.is_none()))
        .bind(limit)
        .fetch_all(&mut *connection)
        .await?;
    rows.iter()
        .map(|row| Ok((StackKey::read(row)?, row.try_get("group_title")?)))
        .collect()
}

/// Stores what an analysis found.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_frames(
    connection: &mut AnyConnection,
    key: &str,
    frames: &[Frame],
    cause: &str,
    missing_symbols: &[String],
) -> Result<()> {
    sqlx::query("UPDATE stack_keys SET frames = $1, cause = $2, missing_symbols = $3 WHERE key = $4")
        .bind(serde_json::to_string(frames).unwrap_or_default())
        .bind(cause)
        .bind(missing_symbols.join(" "))
        .bind(key)
        .execute(&mut *connection)
        .await?;
    super::key_functions::set(connection, key, frames).await?;
    super::symbols::set_missing(connection, key, missing_symbols).await
}

/// Moves a key from its group to another one, with all its counts. The new group must exist. An
/// empty old group is removed, and its address leads to the new one.
///
/// # Errors
/// Fails if the database fails.
pub async fn move_to(
    connection: &mut AnyConnection,
    key: &str,
    from: &str,
    to: &str,
    time: i64,
    reason: &str,
) -> Result<()> {
    if !set_group(connection, key, from, to, time, reason).await? {
        return Ok(());
    }
    for group in [from, to] {
        super::groups::recount(connection, group).await?;
    }
    super::groups::delete_empty(connection, from).await
}

/// Notes that a key belongs to another group. The caller computes the counts of both groups again.
/// Returns `false` if the key was not in the group `from`.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_group(
    connection: &mut AnyConnection,
    key: &str,
    from: &str,
    to: &str,
    time: i64,
    reason: &str,
) -> Result<bool> {
    let changed = sqlx::query("UPDATE stack_keys SET group_id = $1 WHERE key = $2 AND group_id = $3")
        .bind(to)
        .bind(key)
        .bind(from)
        .execute(&mut *connection)
        .await?;
    if changed.rows_affected() == 0 || from == to {
        return Ok(false);
    }
    sqlx::query(
        "INSERT INTO key_moves (id, key, from_group, to_group, time, reason) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(new_id()?)
    .bind(key)
    .bind(from)
    .bind(to)
    .bind(time)
    .bind(reason)
    .execute(&mut *connection)
    .await?;
    Ok(true)
}
