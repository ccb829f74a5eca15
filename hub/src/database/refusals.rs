//! The reasons for which uploads were refused after their last byte.

use super::Database;
use crate::clock;
use crate::database::transact;
use crate::error::Result;
use sqlx::AnyConnection;

/// The time for which a reason is kept.
const LIFETIME: i64 = clock::DAY;

/// Notes the reason for which an upload was refused, and forgets old ones.
///
/// # Errors
/// Fails if the database fails.
async fn note(connection: &mut AnyConnection, id: &str, token: &str, problem: &str) -> Result<()> {
    let now = clock::now();
    sqlx::query("DELETE FROM refused_uploads WHERE refused < $1 OR id = $2")
        .bind(now - LIFETIME)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    sqlx::query("INSERT INTO refused_uploads (id, token, problem, refused) VALUES ($1, $2, $3, $4)")
        .bind(id)
        .bind(token)
        .bind(problem)
        .bind(now)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Notes the reason for which an upload was refused.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn note_refusal(&self, id: &str, token: &str, problem: &str) -> Result<()> {
        transact!(self, connection => {
            note(connection, id, token, problem).await
        })
    }

    /// Returns the reason for which an upload of a token was refused, if it was.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn refusal(&self, id: &str, token: &str) -> Result<Option<String>> {
        let select = "SELECT problem FROM refused_uploads WHERE id = $1 AND token = $2";
        Ok(sqlx::query_scalar(select)
            .bind(id)
            .bind(token)
            .fetch_optional(self.reader())
            .await?)
    }
}
