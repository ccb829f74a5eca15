//! Groups: sets of stack keys with a state.

use super::Database;
use crate::database::transact;
use crate::error::{Error, Result};
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;
use std::collections::BTreeSet;

/// The most words of a group that the search finds it by.
const MAX_WORDS: usize = 200;
/// The longest word.
const MAX_WORD: usize = 64;

/// A group as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The identifier.
    pub id: String,
    /// The service.
    pub service: String,
    /// The title.
    pub title: String,
    /// The signature.
    pub signature: String,
    /// The version of the rules that made the signature.
    pub grouping_version: i64,
    /// Whether the signature comes from addresses only.
    pub is_provisional: bool,
    /// The signal.
    pub signal: i64,
    /// The name of the state.
    pub state_name: String,
    /// The state, as JSON of `lifecycle`.
    pub state: String,
    /// The time of the last change of the state.
    pub state_since: i64,
    /// The reason for which the last report changed no state: one sentence.
    pub undetermined: Option<String>,
    /// The responsible person.
    pub assignee: Option<String>,
    /// The time of the first crash.
    pub first_seen: i64,
    /// The time of the last crash.
    pub last_seen: i64,
    /// The build of the first report.
    pub first_build: String,
    /// The build of the last report.
    pub last_build: String,
    /// The number of reports.
    pub reports: i64,
    /// The number of hosts.
    pub hosts: i64,
    /// The number of stored bundles.
    pub bundles: i64,
}

impl GroupRow {
    pub(super) fn read(row: &AnyRow) -> Result<Self> {
        let provisional: i64 = row.try_get("provisional")?;
        Ok(Self {
            id: row.try_get("id")?,
            service: row.try_get("service")?,
            title: row.try_get("title")?,
            signature: row.try_get("signature")?,
            grouping_version: row.try_get("grouping_version")?,
            is_provisional: provisional != 0,
            signal: row.try_get("signal")?,
            state_name: row.try_get("state")?,
            state: row
                .try_get::<Option<String>, _>("state_detail")?
                .unwrap_or_default(),
            state_since: row.try_get("state_since")?,
            undetermined: row.try_get("undetermined")?,
            assignee: row.try_get("assignee")?,
            first_seen: row.try_get("first_seen")?,
            last_seen: row.try_get("last_seen")?,
            first_build: row.try_get("first_build")?,
            last_build: row.try_get("last_build")?,
            reports: row.try_get("reports")?,
            hosts: row.try_get("hosts")?,
            bundles: row.try_get("bundles")?,
        })
    }
}

/// Adds a group, if there is none of this identifier. Returns whether it was added.
///
/// # Errors
/// Fails if the database fails.
pub async fn insert(connection: &mut AnyConnection, group: &GroupRow, words: &[&str]) -> Result<bool> {
    let insert = "INSERT INTO groups (id, service, title, signature, grouping_version, provisional, signal, state, \
                  state_since, state_detail, first_seen, last_seen, first_build, last_build, reports, hosts, bundles) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, 0, 0) ON CONFLICT (id) DO NOTHING";
    let done = sqlx::query(insert)
        .bind(&group.id)
        .bind(&group.service)
        .bind(&group.title)
        .bind(&group.signature)
        .bind(group.grouping_version)
        .bind(i64::from(group.is_provisional))
        .bind(group.signal)
        .bind(&group.state_name)
        .bind(group.state_since)
        .bind(&group.state)
        .bind(group.first_seen)
        .bind(group.last_seen)
        .bind(&group.first_build)
        .bind(&group.last_build)
        .execute(&mut *connection)
        .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    for word in search_words(words) {
        sqlx::query("INSERT INTO group_words (word, group_id) VALUES ($1, $2) ON CONFLICT (word, group_id) DO NOTHING")
            .bind(word)
            .bind(&group.id)
            .execute(&mut *connection)
            .await?;
    }
    Ok(true)
}

/// Counts a report of a group, and returns the group after it.
///
/// # Errors
/// Fails if the database fails.
pub async fn count(
    connection: &mut AnyConnection,
    id: &str,
    time: i64,
    build: &str,
    is_new_host: bool,
) -> Result<GroupRow> {
    let update = "UPDATE groups SET reports = reports + 1, hosts = hosts + $1, \
                  last_build = CASE WHEN last_seen <= $2 THEN $3 ELSE last_build END, \
                  last_seen = CASE WHEN last_seen < $2 THEN $2 ELSE last_seen END, \
                  first_build = CASE WHEN first_seen > $2 THEN $3 ELSE first_build END, \
                  first_seen = CASE WHEN first_seen > $2 THEN $2 ELSE first_seen END WHERE id = $4 RETURNING *";
    let row = sqlx::query(update)
        .bind(i64::from(is_new_host))
        .bind(time)
        .bind(build)
        .bind(id)
        .fetch_optional(&mut *connection)
        .await?;
    let row = row.ok_or_else(|| Error::Absent(format!("group {id}")))?;
    GroupRow::read(&row)
}

/// Returns a group within a transaction.
///
/// # Errors
/// Fails if the database fails.
pub async fn find(connection: &mut AnyConnection, id: &str) -> Result<Option<GroupRow>> {
    let found = sqlx::query("SELECT * FROM groups WHERE id = $1")
        .bind(id)
        .fetch_optional(&mut *connection)
        .await?;
    found.as_ref().map(GroupRow::read).transpose()
}

/// Changes the state of a group.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_state(
    connection: &mut AnyConnection,
    id: &str,
    name: &str,
    detail: &str,
    since: i64,
) -> Result<()> {
    sqlx::query("UPDATE groups SET state = $1, state_detail = $2, state_since = $3 WHERE id = $4")
        .bind(name)
        .bind(detail)
        .bind(since)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Notes the reason for which a report changed no state. `None`: there is none.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_undetermined(
    connection: &mut AnyConnection,
    id: &str,
    sentence: Option<&str>,
) -> Result<()> {
    sqlx::query("UPDATE groups SET undetermined = $1 WHERE id = $2")
        .bind(sentence)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Gives a group the decisions of people on another one, whose keys it took over.
///
/// # Errors
/// Fails if the database fails.
pub async fn inherit(connection: &mut AnyConnection, from: &GroupRow, to: &str) -> Result<()> {
    let update = "UPDATE groups SET state = $1, state_detail = $2, state_since = $3, undetermined = $4, \
                  assignee = $5 WHERE id = $6";
    sqlx::query(update)
        .bind(&from.state_name)
        .bind(&from.state)
        .bind(from.state_since)
        .bind(from.undetermined.as_deref())
        .bind(from.assignee.as_deref())
        .bind(to)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Sets the person who is responsible for a group.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_assignee(connection: &mut AnyConnection, id: &str, assignee: Option<&str>) -> Result<bool> {
    let done = sqlx::query("UPDATE groups SET assignee = $1 WHERE id = $2")
        .bind(assignee)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns the builds of a group's reports.
///
/// # Errors
/// Fails if the database fails.
pub async fn builds(connection: &mut AnyConnection, id: &str) -> Result<Vec<String>> {
    let select = "SELECT DISTINCT build FROM group_hours WHERE group_id = $1 ORDER BY build LIMIT 2000";
    Ok(sqlx::query_scalar(select)
        .bind(id)
        .fetch_all(&mut *connection)
        .await?)
}

/// Computes the counts of a group again from its keys.
///
/// # Errors
/// Fails if the database fails.
pub async fn recount(connection: &mut AnyConnection, id: &str) -> Result<()> {
    for statement in [
        "DELETE FROM group_hours WHERE group_id = $1",
        "DELETE FROM group_hosts WHERE group_id = $1",
        "INSERT INTO group_hours (group_id, build, hour, reports) \
         SELECT k.group_id, h.build, h.hour, CAST(SUM(h.reports) AS BIGINT) FROM key_hours h \
         JOIN stack_keys k ON k.key = h.key WHERE k.group_id = $1 GROUP BY k.group_id, h.build, h.hour",
        "INSERT INTO group_hosts (group_id, host, reports, last_seen) \
         SELECT k.group_id, h.host, CAST(SUM(h.reports) AS BIGINT), MAX(h.last_seen) FROM key_hosts h \
         JOIN stack_keys k ON k.key = h.key WHERE k.group_id = $1 GROUP BY k.group_id, h.host",
        "UPDATE groups SET \
         reports = (SELECT COALESCE(CAST(SUM(reports) AS BIGINT), 0) FROM stack_keys WHERE group_id = $1), \
         hosts = (SELECT COUNT(*) FROM group_hosts WHERE group_id = $1), \
         bundles = (SELECT COUNT(*) FROM stack_keys k CROSS JOIN reports r \
         WHERE r.key = k.key AND k.group_id = $1 AND r.bundle = 'stored'), \
         first_seen = (SELECT COALESCE(MIN(first_seen), 0) FROM stack_keys WHERE group_id = $1), \
         last_seen = (SELECT COALESCE(MAX(last_seen), 0) FROM stack_keys WHERE group_id = $1) WHERE id = $1",
        "UPDATE groups SET \
         first_build = COALESCE((SELECT r.build FROM reports r JOIN stack_keys k ON k.key = r.key \
         WHERE k.group_id = $1 ORDER BY r.time, r.id LIMIT 1), first_build), \
         last_build = COALESCE((SELECT r.build FROM reports r JOIN stack_keys k ON k.key = r.key \
         WHERE k.group_id = $1 ORDER BY r.time DESC, r.id DESC LIMIT 1), last_build) WHERE id = $1",
    ] {
        sqlx::query(statement).bind(id).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Removes a group that has no key.
///
/// # Errors
/// Fails if the database fails.
pub async fn delete_empty(connection: &mut AnyConnection, id: &str) -> Result<()> {
    let removed = sqlx::query(
        "DELETE FROM groups WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM stack_keys WHERE group_id = $1)",
    )
    .bind(id)
    .execute(&mut *connection)
    .await?;
    if removed.rows_affected() == 1 {
        for statement in [
            "DELETE FROM group_words WHERE group_id = $1",
            "DELETE FROM group_hours WHERE group_id = $1",
            "DELETE FROM group_hosts WHERE group_id = $1",
        ] {
            sqlx::query(statement).bind(id).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

impl Database {
    /// Returns a group. If all its keys moved to another group, returns that one.
    ///
    /// # Errors
    /// Fails if there is no such group, or the database fails.
    pub async fn group(&self, id: &str) -> Result<GroupRow> {
        let mut connection = self.reader().acquire().await?;
        let mut id = id.to_owned();
        // Each move is to a younger group, and cycles end with the limit.
        for _ in 0..16 {
            if let Some(group) = find(&mut connection, &id).await? {
                return Ok(group);
            }
            let moved = sqlx::query_scalar(
                "SELECT to_group FROM key_moves WHERE from_group = $1 ORDER BY time DESC LIMIT 1",
            )
            .bind(&id)
            .fetch_optional(&mut *connection)
            .await?;
            match moved {
                Some(next) => id = next,
                None => break,
            }
        }
        Err(Error::Absent(format!("group {id}")))
    }

    /// Sets the person who is responsible for a group.
    ///
    /// # Errors
    /// Fails if there is no such group, or the database fails.
    pub async fn assign_group(&self, id: &str, assignee: Option<&str>) -> Result<()> {
        transact!(self, connection => {
            if !set_assignee(connection, id, assignee).await? {
                return Err(Error::Absent(format!("group {id}")));
            }
            Ok(())
        })
    }
}

/// Returns the words of texts, in lower case: whole names and their parts.
#[must_use]
pub fn search_words(texts: &[&str]) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for text in texts {
        let names = text.split(|char: char| !(char.is_alphanumeric() || char == '_' || char == '.'));
        for name in names.filter(|name| name.len() > 1) {
            let lower: String = name.chars().take(MAX_WORD).collect::<String>().to_lowercase();
            for part in lower.split(['_', '.']).filter(|part| part.len() > 1) {
                words.insert(part.to_owned());
            }
            words.insert(lower);
            if words.len() >= MAX_WORDS {
                return words;
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_parts_are_words() {
        let words = search_words(&["SIGSEGV null read | Ledger::close_account(int)", "ledger.c"]);
        let wanted = [
            "account",
            "close",
            "close_account",
            "int",
            "ledger",
            "ledger.c",
            "null",
            "read",
            "sigsegv",
        ];
        assert_eq!(words.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn words_are_bounded() {
        let text: String = (0..10_000).map(|at| format!("word{at} ")).collect();
        assert!(search_words(&[&text]).len() <= MAX_WORDS + 1);
        assert!(
            search_words(&[&"x".repeat(1 << 20)])
                .iter()
                .all(|word| word.len() <= MAX_WORD)
        );
    }
}
