//! Leases: work that one hub does at a time.

use super::Database;
use crate::clock;
use crate::database::transact;
use crate::error::Result;
use sqlx::AnyConnection;

impl Database {
    /// Takes a lease until a time from now. Returns `false` if another hub has it.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn take_lease(&self, name: &str, duration: i64) -> Result<bool> {
        transact!(self, connection => {
            lock(connection, name).await?;
            let now = clock::now();
            let update = "UPDATE leases SET until = $1 WHERE name = $2 AND until <= $3";
            let done = sqlx::query(update)
                .bind(now + duration)
                .bind(name)
                .bind(now)
                .execute(&mut *connection)
                .await?;
            Ok(done.rows_affected() == 1)
        })
    }
}

/// Keeps other hubs out of a piece of work until the transaction ends.
///
/// # Errors
/// Fails if the database fails.
pub async fn lock(connection: &mut AnyConnection, name: &str) -> Result<()> {
    for statement in [
        "INSERT INTO leases (name, until) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING",
        // The written row is locked until the end of the transaction.
        "UPDATE leases SET until = until WHERE name = $1",
    ] {
        sqlx::query(statement)
            .bind(name)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Keeps other transactions that change counts or states out until this one ends.
///
/// SQLite has one writer anyway. In PostgreSQL, a sum that one transaction stores would miss what
/// another one adds. Two batches that lock rows in different orders would fail.
///
/// # Errors
/// Fails if the database fails.
pub async fn lock_counts(connection: &mut AnyConnection) -> Result<()> {
    lock(connection, "counts").await
}
