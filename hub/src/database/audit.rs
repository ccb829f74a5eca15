//! The audit log: who did what.

use super::Database;
use super::tokens::new_id;
use crate::clock;
use crate::database::transact;
use crate::error::Result;
use sqlx::{AnyConnection, Row};

/// One entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The time.
    pub time: i64,
    /// The person or token.
    pub actor: String,
    /// The action in a word: "open", "download", "resolve".
    pub action: String,
    /// The crash, group or token.
    pub subject: String,
}

/// Adds an entry within a transaction.
///
/// # Errors
/// Fails if the database fails.
pub async fn add(connection: &mut AnyConnection, actor: &str, action: &str, subject: &str) -> Result<()> {
    sqlx::query("INSERT INTO audit (id, time, actor, action, subject) VALUES ($1, $2, $3, $4, $5)")
        .bind(new_id()?)
        .bind(clock::now())
        .bind(actor)
        .bind(action)
        .bind(subject)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Adds an entry.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn log_action(&self, actor: &str, action: &str, subject: &str) -> Result<()> {
        transact!(self, connection => { add(connection, actor, action, subject).await })
    }

    /// Returns the newest entries.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn audit(&self, limit: i64) -> Result<Vec<AuditEntry>> {
        let rows = sqlx::query("SELECT time, actor, action, subject FROM audit ORDER BY time DESC LIMIT $1")
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        let entry = |row: &sqlx::any::AnyRow| {
            Ok(AuditEntry {
                time: row.try_get("time")?,
                actor: row.try_get("actor")?,
                action: row.try_get("action")?,
                subject: row.try_get("subject")?,
            })
        };
        rows.iter().map(entry).collect()
    }
}
