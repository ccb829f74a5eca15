//! The groups that keys would have by the version of signatures that is computed beside.

use super::Database;
use crate::error::Result;
use sqlx::{AnyConnection, Row};

/// A group by the version beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextGroup {
    /// The identifier.
    pub id: String,
    /// The title.
    pub title: String,
    /// The signature.
    pub signature: String,
}

/// A group before or after the change of versions, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedGroup {
    /// The identifier.
    pub id: String,
    /// The title.
    pub title: String,
    /// The signature.
    pub signature: String,
    /// The keys.
    pub keys: i64,
    /// Their reports.
    pub reports: i64,
}

/// The effect that the change of versions would have on all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionChange {
    /// The keys whose group by the version beside is known.
    pub keys: i64,
    /// All keys.
    pub all_keys: i64,
    /// Groups that would become one: the title, the groups before, and the reports. The largest
    /// come first.
    pub merges: Vec<(String, i64, i64)>,
    /// Groups that would become several: identifier and title, the groups after, and the reports.
    pub splits: Vec<(String, String, i64, i64)>,
    /// The number of groups that would become one with others.
    pub merged: i64,
    /// The number of groups that would become several.
    pub split: i64,
}

/// Notes the group of a key by the version beside.
///
/// # Errors
/// Fails if the database fails.
pub async fn set(connection: &mut AnyConnection, key: &str, next: &NextGroup) -> Result<()> {
    let insert = "INSERT INTO next_groups (key, group_id, title, signature) VALUES ($1, $2, $3, $4) \
                  ON CONFLICT (key) DO UPDATE SET group_id = $2, title = $3, signature = $4";
    sqlx::query(insert)
        .bind(key)
        .bind(&next.id)
        .bind(&next.title)
        .bind(&next.signature)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// The statement for groups by the version beside that have keys of several groups.
const MERGES: &str = "SELECT n.group_id AS id, MIN(n.title) AS title, COUNT(DISTINCT k.group_id) AS parts, \
     CAST(SUM(k.reports) AS BIGINT) AS reports FROM next_groups n JOIN stack_keys k ON k.key = n.key \
     GROUP BY n.group_id HAVING COUNT(DISTINCT k.group_id) > 1";
/// The statement for groups whose keys have several groups by the version beside.
const SPLITS: &str = "SELECT k.group_id AS id, MIN(g.title) AS title, COUNT(DISTINCT n.group_id) AS parts, \
     CAST(SUM(k.reports) AS BIGINT) AS reports FROM next_groups n JOIN stack_keys k ON k.key = n.key \
     JOIN groups g ON g.id = k.group_id GROUP BY k.group_id HAVING COUNT(DISTINCT n.group_id) > 1";

impl Database {
    /// Returns the effect that the change of versions would have.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn version_change(&self, limit: i64) -> Result<VersionChange> {
        let count = |sql: String| {
            let query = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(sql));
            query.fetch_one(self.reader())
        };
        let joined = "SELECT COUNT(*) FROM next_groups n JOIN stack_keys k ON k.key = n.key";
        let mut change = VersionChange {
            keys: count(joined.to_owned()).await?,
            all_keys: count("SELECT COUNT(*) FROM stack_keys".to_owned()).await?,
            merged: count(format!(
                "SELECT COALESCE(CAST(SUM(parts) AS BIGINT), 0) FROM ({MERGES}) merges"
            ))
            .await?,
            split: count(format!("SELECT COUNT(*) FROM ({SPLITS}) splits")).await?,
            ..VersionChange::default()
        };
        for (statement, is_merge) in [(MERGES, true), (SPLITS, false)] {
            let sql = format!("{statement} ORDER BY 4 DESC, 1 LIMIT $1");
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(limit)
                .fetch_all(self.reader())
                .await?;
            for row in rows {
                let (id, title) = (row.try_get("id")?, row.try_get("title")?);
                let (groups, reports) = (row.try_get("parts")?, row.try_get("reports")?);
                match is_merge {
                    true => change.merges.push((title, groups, reports)),
                    false => change.splits.push((id, title, groups, reports)),
                }
            }
        }
        Ok(change)
    }

    /// Returns the groups that the keys of a group would have by the version beside.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn next_groups_of(&self, group: &str, limit: i64) -> Result<Vec<ComparedGroup>> {
        let select = "SELECT n.group_id AS id, MIN(n.title) AS title, MIN(n.signature) AS signature, \
                      COUNT(*) AS keys, CAST(SUM(k.reports) AS BIGINT) AS reports FROM next_groups n \
                      JOIN stack_keys k ON k.key = n.key WHERE k.group_id = $1 \
                      GROUP BY n.group_id ORDER BY 5 DESC, 1 LIMIT $2";
        self.compared(select, group, limit).await
    }

    /// Returns the other groups that would become one with a group, or with a part of it.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn merged_with(&self, group: &str, limit: i64) -> Result<Vec<ComparedGroup>> {
        let select = "SELECT g.id AS id, MIN(g.title) AS title, MIN(g.signature) AS signature, COUNT(*) AS keys, \
                      CAST(SUM(k.reports) AS BIGINT) AS reports FROM next_groups n \
                      JOIN stack_keys k ON k.key = n.key JOIN groups g ON g.id = k.group_id \
                      WHERE k.group_id <> $1 AND n.group_id IN (SELECT m.group_id FROM next_groups m \
                      JOIN stack_keys l ON l.key = m.key WHERE l.group_id = $1) \
                      GROUP BY g.id ORDER BY 5 DESC, 1 LIMIT $2";
        self.compared(select, group, limit).await
    }

    /// Returns the number of keys of a service, or of all.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn key_count(&self, service: Option<&str>) -> Result<i64> {
        let select = "SELECT COUNT(*) FROM stack_keys WHERE service = $1 OR $2 = 1";
        Ok(sqlx::query_scalar(select)
            .bind(service.unwrap_or_default())
            .bind(i64::from(service.is_none()))
            .fetch_one(self.reader())
            .await?)
    }

    async fn compared(&self, select: &'static str, group: &str, limit: i64) -> Result<Vec<ComparedGroup>> {
        let rows = sqlx::query(select)
            .bind(group)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        let read = |row: &sqlx::any::AnyRow| {
            Ok(ComparedGroup {
                id: row.try_get("id")?,
                title: row.try_get("title")?,
                signature: row.try_get("signature")?,
                keys: row.try_get("keys")?,
                reports: row.try_get("reports")?,
            })
        };
        rows.iter().map(read).collect()
    }
}
