//! The functions on the stacks of crashes, by which crashes with a function are found.

use super::{Database, transact};
use crate::error::Result;
use crate::grouping::normalize;
use crate::stack::Frame;
use sqlx::{AnyConnection, Row};
use std::collections::BTreeSet;

/// The most functions of a key.
const MOST: usize = 512;
/// The keys of earlier versions that are listed at once.
const BATCH: i64 = 100;

/// Stores the functions of a key's frames, in place of those before.
///
/// # Errors
/// Fails if the database fails.
pub async fn set(connection: &mut AnyConnection, key: &str, frames: &[Frame]) -> Result<()> {
    sqlx::query("DELETE FROM key_functions WHERE key = $1")
        .bind(key)
        .execute(&mut *connection)
        .await?;
    let names = frames.iter().filter_map(|frame| frame.function.as_deref());
    let functions: BTreeSet<String> = names.take(MOST).map(normalize).collect();
    for function in functions {
        let insert = "INSERT INTO key_functions (function, key) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        sqlx::query(insert)
            .bind(function)
            .bind(key)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("UPDATE stack_keys SET lists_functions = 1 WHERE key = $1")
        .bind(key)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Stores the functions of some keys that an earlier version analyzed. Returns their number,
    /// which is 0 when all are stored.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn list_functions_of_old_keys(&self) -> Result<usize> {
        let select =
            "SELECT key, frames FROM stack_keys WHERE lists_functions = 0 AND frames IS NOT NULL LIMIT $1";
        transact!(self, connection => {
            let rows = sqlx::query(select).bind(BATCH).fetch_all(&mut *connection).await?;
            for row in &rows {
                let (key, frames): (String, String) = (row.try_get("key")?, row.try_get("frames")?);
                // A damaged row has no functions. rebuild-index repairs it.
                let frames: Vec<Frame> = serde_json::from_str(&frames).unwrap_or_default();
                set(connection, &key, &frames).await?;
            }
            Ok(rows.len())
        })
    }
}
