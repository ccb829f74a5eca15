//! Saved views: names for addresses of the explorer and the page for SQL.

use super::tokens::new_id;
use super::{Database, audit, transact};
use crate::clock;
use crate::error::{Error, Result};
use serde::Serialize;
use sqlx::Row;
use sqlx::any::AnyRow;

/// The most views of a hub.
const MOST: i64 = 500;

/// A saved view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SavedView {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The query of the address.
    pub query: String,
    /// The person who saved it.
    pub creator: String,
    /// The time, in microseconds since 1970.
    pub created: i64,
}

impl SavedView {
    fn read(row: &AnyRow) -> Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            query: row.try_get("query")?,
            creator: row.try_get("creator")?,
            created: row.try_get("created")?,
        })
    }
}

impl Database {
    /// Returns all saved views, by name.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn saved_views(&self) -> Result<Vec<SavedView>> {
        let select = "SELECT * FROM saved_views ORDER BY name LIMIT $1";
        let rows = sqlx::query(select).bind(MOST).fetch_all(self.reader()).await?;
        rows.iter().map(SavedView::read).collect()
    }

    /// Returns a saved view.
    ///
    /// # Errors
    /// Fails if there is no such view, or the database fails.
    pub async fn saved_view(&self, id: &str) -> Result<SavedView> {
        let row = sqlx::query("SELECT * FROM saved_views WHERE id = $1")
            .bind(id)
            .fetch_optional(self.reader())
            .await?;
        row.as_ref()
            .map(SavedView::read)
            .transpose()?
            .ok_or_else(|| Error::Absent("saved view of this name; somebody may have deleted it".to_owned()))
    }

    /// Saves a view, with an entry of the audit log. Returns its identifier.
    ///
    /// # Errors
    /// Fails if the name is taken, there are too many views, or the database fails.
    pub async fn save_view(&self, name: &str, query: &str, creator: &str) -> Result<String> {
        let id = new_id()?;
        transact!(self, connection => {
            let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM saved_views")
                .fetch_one(&mut *connection)
                .await?;
            if count >= MOST {
                return Err(Error::Conflict(format!("the hub has {MOST} saved views; delete one first")));
            }
            let insert = "INSERT INTO saved_views (id, name, query, creator, created) VALUES ($1, $2, $3, $4, $5) \
                          ON CONFLICT (name) DO NOTHING";
            let done = sqlx::query(insert)
                .bind(&id)
                .bind(name)
                .bind(query)
                .bind(creator)
                .bind(clock::now())
                .execute(&mut *connection)
                .await?;
            if done.rows_affected() == 0 {
                return Err(Error::Conflict("a saved view has this name; choose another one".to_owned()));
            }
            audit::add(connection, creator, "save-view", name).await
        })?;
        Ok(id)
    }

    /// Deletes a saved view, with an entry of the audit log.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn delete_view(&self, view: &SavedView, actor: &str) -> Result<()> {
        transact!(self, connection => {
            sqlx::query("DELETE FROM saved_views WHERE id = $1")
                .bind(&view.id)
                .execute(&mut *connection)
                .await?;
            audit::add(connection, actor, "delete-view", &view.name).await
        })
    }
}
