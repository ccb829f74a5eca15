//! The identity of the hubs that share a database.

use super::leases::lock;
use super::tokens::new_id;
use super::{Database, transact};
use crate::error::Result;

impl Database {
    /// Returns the identity, which is chosen at the first call. Two addresses of one hub, or of
    /// hubs that share this database, have the same one.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn identity(&self) -> Result<String> {
        const SELECT: &str = "SELECT id FROM identity";
        if let Some(known) = sqlx::query_scalar(SELECT).fetch_optional(self.reader()).await? {
            return Ok(known);
        }
        let id = new_id()?;
        transact!(self, connection => {
            // Two hubs may start at once.
            lock(connection, "identity").await?;
            let known: Option<String> = sqlx::query_scalar(SELECT).fetch_optional(&mut *connection).await?;
            match known {
                Some(known) => Ok(known),
                None => {
                    sqlx::query("INSERT INTO identity (id) VALUES ($1)")
                        .bind(id.clone())
                        .execute(&mut *connection)
                        .await?;
                    Ok(id.clone())
                }
            }
        })
    }
}
