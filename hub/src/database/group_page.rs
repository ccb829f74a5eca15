//! Queries of a group's page: trend, builds, moves, changes and comments.

use super::Database;
use super::builds::{self, BuildRow};
use super::groups::GroupRow;
use super::stack_keys::{self, StackKey};
use super::tokens::new_id;
use crate::clock;
use crate::database::transact;
use crate::error::Result;
use backtrail_report::CrashReport;
use sqlx::Row;
use std::collections::{BTreeMap, HashMap};

/// A move of a key between groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRow {
    /// The time.
    pub time: i64,
    /// The group before.
    pub from: String,
    /// The group after.
    pub to: String,
    /// `symbols`, `rules` or `version`.
    pub reason: String,
    /// The reports of the key.
    pub reports: i64,
}

/// A comment of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommentRow {
    /// The time.
    pub time: i64,
    /// The person.
    pub author: String,
    /// The text.
    pub text: String,
}

/// The reports of a group by build, and the hosts that crashed with each.
pub type BuildCounts = HashMap<String, (u64, u64)>;

impl Database {
    /// Returns the reports of a group by build and hour, from an hour on.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn group_trend(
        &self,
        group: &str,
        first_hour: i64,
    ) -> Result<BTreeMap<String, Vec<(i64, u64)>>> {
        let select =
            "SELECT build, hour, reports FROM group_hours WHERE group_id = $1 AND hour >= $2 ORDER BY hour";
        let rows = sqlx::query(select)
            .bind(group)
            .bind(first_hour)
            .fetch_all(self.reader())
            .await?;
        let mut trend: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for row in rows {
            let reports: i64 = row.try_get("reports")?;
            let entry = (row.try_get("hour")?, reports.unsigned_abs());
            trend.entry(row.try_get("build")?).or_default().push(entry);
        }
        Ok(trend)
    }

    /// Returns the builds of a group's service in order, and the counts of the group.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn group_builds(&self, group: &GroupRow) -> Result<(Vec<BuildRow>, BuildCounts)> {
        let mut connection = self.reader().acquire().await?;
        let builds = builds::of_service(&mut connection, &group.service).await?;
        let select = "SELECT r.build AS build, COUNT(*) AS reports, COUNT(DISTINCT r.host) AS hosts FROM reports r \
                      JOIN stack_keys k ON k.key = r.key WHERE k.group_id = $1 GROUP BY r.build";
        let rows = sqlx::query(select)
            .bind(&group.id)
            .fetch_all(&mut *connection)
            .await?;
        let mut counts = HashMap::new();
        for row in rows {
            let (reports, hosts): (i64, i64) = (row.try_get("reports")?, row.try_get("hosts")?);
            counts.insert(
                row.try_get("build")?,
                (reports.unsigned_abs(), hosts.unsigned_abs()),
            );
        }
        Ok((builds, counts))
    }

    /// Returns the newest reports of a group, and the newest other ones of its service.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn reports_inside_and_outside(
        &self,
        group: &GroupRow,
        limit: i64,
    ) -> Result<(Vec<CrashReport>, Vec<CrashReport>)> {
        let mut all = Vec::with_capacity(2);
        for condition in ["k.group_id = $1", "k.group_id <> $1 AND r.service = $2"] {
            // The newest are chosen before their texts are read.
            let select = format!(
                "SELECT report FROM reports WHERE id IN (SELECT r.id FROM reports r \
                 JOIN stack_keys k ON k.key = r.key WHERE {condition} ORDER BY r.time DESC LIMIT {limit})"
            );
            let query = sqlx::query(sqlx::AssertSqlSafe(select)).bind(&group.id);
            let query = if condition.contains("$2") {
                query.bind(&group.service)
            } else {
                query
            };
            let rows = query.fetch_all(self.reader()).await?;
            let texts = rows
                .iter()
                .filter_map(|row| row.try_get::<String, _>("report").ok());
            all.push(
                texts
                    .filter_map(|text| serde_json::from_str(&text).ok())
                    .collect(),
            );
        }
        let outside = all.pop().unwrap_or_default();
        Ok((all.pop().unwrap_or_default(), outside))
    }

    /// Returns a stack key. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn stack_key(&self, key: &str) -> Result<Option<StackKey>> {
        let mut connection = self.reader().acquire().await?;
        stack_keys::find(&mut connection, key).await
    }

    /// Returns the keys of a group, those with most reports first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn group_keys(&self, group: &str, limit: i64) -> Result<Vec<StackKey>> {
        let mut connection = self.reader().acquire().await?;
        stack_keys::of_group(&mut connection, group, limit).await
    }

    /// Returns the largest key of each of the other groups of a service.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn other_groups(
        &self,
        group: &GroupRow,
        limit: i64,
    ) -> Result<Vec<(String, String, StackKey)>> {
        let select = "SELECT g.title AS title, k.* FROM groups g JOIN stack_keys k ON k.group_id = g.id \
                      WHERE g.service = $1 AND g.id <> $2 AND k.key = (SELECT x.key FROM stack_keys x \
                      WHERE x.group_id = g.id ORDER BY x.reports DESC, x.key LIMIT 1) \
                      ORDER BY g.last_seen DESC LIMIT $3";
        let rows = sqlx::query(select)
            .bind(&group.service)
            .bind(&group.id)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        let read = |row: &sqlx::any::AnyRow| {
            let key = StackKey::read(row)?;
            Ok((key.group.clone(), row.try_get("title")?, key))
        };
        rows.iter().map(read).collect()
    }

    /// Returns the key with most reports of each group, by group.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn largest_keys(&self, groups: &[&str]) -> Result<HashMap<String, StackKey>> {
        let places: Vec<_> = (1..=groups.len()).map(|at| format!("${at}")).collect();
        let select = format!(
            "SELECT k.* FROM stack_keys k WHERE k.group_id IN ({}) AND k.key = (SELECT x.key FROM stack_keys x \
             WHERE x.group_id = k.group_id ORDER BY x.reports DESC, x.key LIMIT 1)",
            places.join(", ")
        );
        let mut query = sqlx::query(sqlx::AssertSqlSafe(select));
        for group in groups {
            query = query.bind(*group);
        }
        if groups.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = query.fetch_all(self.reader()).await?;
        let keys = rows.iter().map(StackKey::read);
        keys.map(|key| key.map(|key| (key.group.clone(), key))).collect()
    }

    /// Returns the moves of keys into a group and out of it, the newest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn moves(&self, group: &str, limit: i64) -> Result<Vec<MoveRow>> {
        let select = "SELECT m.time AS time, m.from_group AS from_group, m.to_group AS to_group, m.reason AS reason, \
                      k.reports AS reports FROM key_moves m JOIN stack_keys k ON k.key = m.key \
                      WHERE m.to_group = $1 OR m.from_group = $1 ORDER BY m.time DESC LIMIT $2";
        let rows = sqlx::query(select)
            .bind(group)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        let read = |row: &sqlx::any::AnyRow| {
            Ok(MoveRow {
                time: row.try_get("time")?,
                from: row.try_get("from_group")?,
                to: row.try_get("to_group")?,
                reason: row.try_get("reason")?,
                reports: row.try_get("reports")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Returns the comments of a group, the oldest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn comments(&self, group: &str, limit: i64) -> Result<Vec<CommentRow>> {
        let select = "SELECT time, author, text FROM comments WHERE group_id = $1 ORDER BY time LIMIT $2";
        let rows = sqlx::query(select)
            .bind(group)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        let read = |row: &sqlx::any::AnyRow| {
            Ok(CommentRow {
                time: row.try_get("time")?,
                author: row.try_get("author")?,
                text: row.try_get("text")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Adds a comment.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn add_comment(&self, group: &str, author: &str, text: &str) -> Result<()> {
        let id = new_id()?;
        transact!(self, connection => {
            sqlx::query("INSERT INTO comments (id, group_id, time, author, text) VALUES ($1, $2, $3, $4, $5)")
                .bind(&id)
                .bind(group)
                .bind(clock::now())
                .bind(author)
                .bind(text)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }
}
