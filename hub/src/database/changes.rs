//! Changes of groups: each event once.

use super::tokens::new_id;
use crate::error::Result;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;

/// A change of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChange<'a> {
    /// The group.
    pub group: &'a str,
    /// The time.
    pub time: i64,
    /// The name of the event.
    pub event: &'a str,
    /// The build of the report, or the one that a person named.
    pub build: Option<&'a str>,
    /// The report that caused it. `None`: a person, or the time.
    pub report: Option<&'a str>,
    /// The person. `None`: a report, or the time.
    pub actor: Option<&'a str>,
    /// The key of the event. A second change with the same key is none.
    pub once: &'a str,
}

/// Adds a change, and returns its identifier. `None`: the change is known.
///
/// # Errors
/// Fails if the database fails.
pub async fn insert(connection: &mut AnyConnection, change: &NewChange<'_>) -> Result<Option<String>> {
    let insert = "INSERT INTO changes (id, group_id, time, event, build, report, actor, once) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (once) DO NOTHING";
    let id = new_id()?;
    let done = sqlx::query(insert)
        .bind(&id)
        .bind(change.group)
        .bind(change.time)
        .bind(change.event)
        .bind(change.build)
        .bind(change.report)
        .bind(change.actor)
        .bind(change.once)
        .execute(&mut *connection)
        .await?;
    Ok((done.rows_affected() == 1).then_some(id))
}

/// Returns whether a group has an event.
///
/// # Errors
/// Fails if the database fails.
pub async fn has(connection: &mut AnyConnection, group: &str, event: &str) -> Result<bool> {
    let found = sqlx::query("SELECT id FROM changes WHERE group_id = $1 AND event = $2 LIMIT 1")
        .bind(group)
        .bind(event)
        .fetch_optional(&mut *connection)
        .await?;
    Ok(found.is_some())
}

/// Returns the first event of a kind of a group.
///
/// # Errors
/// Fails if the database fails.
pub async fn first(connection: &mut AnyConnection, group: &str, event: &str) -> Result<Option<ChangeRow>> {
    let select = "SELECT time, event, build, report, actor FROM changes WHERE group_id = $1 AND event = $2 \
                  ORDER BY time, id LIMIT 1";
    let found = sqlx::query(select)
        .bind(group)
        .bind(event)
        .fetch_optional(&mut *connection)
        .await?;
    found.as_ref().map(ChangeRow::read).transpose()
}

/// Gives changes and comments of a group to the one that replaces it.
///
/// # Errors
/// Fails if the database fails.
pub async fn move_to(connection: &mut AnyConnection, from: &str, to: &str) -> Result<()> {
    sqlx::query("UPDATE changes SET group_id = $1 WHERE group_id = $2")
        .bind(to)
        .bind(from)
        .execute(&mut *connection)
        .await?;
    move_comments(connection, from, to).await
}

/// Gives comments of a group to the one that took over its keys.
///
/// # Errors
/// Fails if the database fails.
pub async fn move_comments(connection: &mut AnyConnection, from: &str, to: &str) -> Result<()> {
    sqlx::query("UPDATE comments SET group_id = $1 WHERE group_id = $2")
        .bind(to)
        .bind(from)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// A change as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRow {
    /// The time.
    pub time: i64,
    /// The name of the event.
    pub event: String,
    /// The build.
    pub build: Option<String>,
    /// The report that caused it.
    pub report: Option<String>,
    /// The person.
    pub actor: Option<String>,
}

impl ChangeRow {
    fn read(row: &AnyRow) -> Result<Self> {
        Ok(Self {
            time: row.try_get("time")?,
            event: row.try_get("event")?,
            build: row.try_get("build")?,
            report: row.try_get("report")?,
            actor: row.try_get("actor")?,
        })
    }
}

impl super::Database {
    /// Returns the changes of a group, the latest first. A group that took over the keys of others
    /// has their changes too, and equal ones are returned once.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn changes(&self, group: &str, limit: i64) -> Result<Vec<ChangeRow>> {
        let select = "SELECT time, event, build, report, actor FROM changes WHERE group_id = $1 \
                      GROUP BY time, event, build, report, actor ORDER BY time DESC, MAX(id) DESC LIMIT $2";
        let rows = sqlx::query(select)
            .bind(group)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(ChangeRow::read).collect()
    }
}
