//! Other hubs that this one asks for profiles.

use super::Database;
use super::tokens::new_id;
use super::{audit, transact};
use crate::clock;
use crate::error::{Error, Result};
use sqlx::Row;
use sqlx::any::AnyRow;
use std::fmt;

/// The most sites.
pub const MAX_SITES: i64 = 32;

/// A site.
#[derive(Clone, PartialEq, Eq)]
pub struct SiteRow {
    /// The name of the cluster, which is unique.
    pub name: String,
    /// The address of its hub, without a slash at its end.
    pub url: String,
    /// The token that its hub wants.
    pub token: Option<String>,
    /// Whether it is asked.
    pub is_enabled: bool,
    /// The person or token that added it.
    pub author: String,
    /// The time of its addition.
    pub created: i64,
}

impl fmt::Debug for SiteRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SiteRow")
            .field("name", &self.name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl SiteRow {
    fn read(row: &AnyRow) -> Result<Self> {
        Ok(Self {
            name: row.try_get("name")?,
            url: row.try_get("url")?,
            token: row.try_get("token")?,
            is_enabled: row.try_get::<i64, _>("enabled")? == 1,
            author: row.try_get("author")?,
            created: row.try_get("created")?,
        })
    }
}

/// A new site, or a change of one.
#[derive(Clone, Copy)]
pub struct SiteText<'a> {
    /// The name.
    pub name: &'a str,
    /// The address.
    pub url: &'a str,
    /// The token. `None`: the one that is known, if the address stays the same.
    pub token: Option<&'a str>,
    /// Whether it is asked.
    pub is_enabled: bool,
}

impl Database {
    /// Adds a site, or changes the one of this name. A token is never sent to an address that it
    /// was not given for.
    ///
    /// # Errors
    /// Fails if there are too many sites, a token is missing, or the database fails.
    pub async fn set_site(&self, site: &SiteText<'_>, actor: &str) -> Result<()> {
        let id = new_id()?;
        transact!(self, connection => {
            let known = sqlx::query("SELECT * FROM sites WHERE name = $1")
                .bind(site.name)
                .fetch_optional(&mut *connection)
                .await?;
            let known = known.as_ref().map(SiteRow::read).transpose()?;
            if known.is_none() {
                let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM sites")
                    .fetch_one(&mut *connection)
                    .await?;
                if count >= MAX_SITES {
                    return Err(Error::Conflict(format!(
                        "there are {MAX_SITES} sites, which is the most; remove one first"
                    )));
                }
            }
            let kept = known.as_ref().filter(|known| known.url == site.url);
            let token = match site.token {
                Some(token) => Some(token.to_owned()),
                None => kept.and_then(|known| known.token.clone()),
            };
            if token.is_none() {
                return Err(Error::Invalid(
                    "a new address needs a token of the other hub, with the scope read".to_owned(),
                ));
            }
            let insert = "INSERT INTO sites (id, name, url, token, enabled, author, created) \
                          VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO UPDATE SET \
                          url = excluded.url, token = excluded.token, enabled = excluded.enabled";
            sqlx::query(insert)
                .bind(&id)
                .bind(site.name)
                .bind(site.url)
                .bind(token)
                .bind(i64::from(site.is_enabled))
                .bind(actor)
                .bind(clock::now())
                .execute(&mut *connection)
                .await?;
            let action = if known.is_some() { "change site" } else { "add site" };
            audit::add(connection, actor, action, site.name).await
        })
    }

    /// Removes a site.
    ///
    /// # Errors
    /// Fails if there is no such site, or the database fails.
    pub async fn remove_site(&self, name: &str, actor: &str) -> Result<()> {
        transact!(self, connection => {
            let done = sqlx::query("DELETE FROM sites WHERE name = $1")
                .bind(name)
                .execute(&mut *connection)
                .await?;
            match done.rows_affected() {
                0 => Err(Error::Absent(format!("site {name}"))),
                _ => audit::add(connection, actor, "remove site", name).await,
            }
        })
    }

    /// Returns all sites by name.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn sites(&self) -> Result<Vec<SiteRow>> {
        let rows = sqlx::query("SELECT * FROM sites ORDER BY name LIMIT $1")
            .bind(MAX_SITES)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(SiteRow::read).collect()
    }
}
