//! The tokens that the hub has given out.

use super::Database;
use crate::access::{Scope, Secret, hash};
use crate::clock;
use crate::database::transact;
use crate::error::{Error, Result};
use backtrail_report::ReportId;
use sqlx::Row;
use sqlx::any::AnyRow;

/// The shortest time between two notes of a token's last use.
const USE_INTERVAL: i64 = 60 * clock::SECOND;

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its identifier.
    pub id: String,
    /// Its name, which the audit log shows.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// The time of its creation.
    pub created: i64,
    /// The end of its validity.
    pub expires: Option<i64>,
    /// The time of its last use, to a minute.
    pub last_used: Option<i64>,
    /// The time at which it was revoked.
    pub revoked: Option<i64>,
}

impl Token {
    fn read(row: &AnyRow) -> Result<Self> {
        let scopes: String = row.try_get("scopes")?;
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            scopes: scopes.split(' ').filter_map(Scope::named).collect(),
            created: row.try_get("created")?,
            expires: row.try_get("expires")?,
            last_used: row.try_get("last_used")?,
            revoked: row.try_get("revoked")?,
        })
    }
}

impl Database {
    /// Creates a token, and returns its identifier and its secret.
    ///
    /// # Errors
    /// Fails if the name is empty, or the database fails.
    pub async fn create_token(
        &self,
        name: &str,
        scopes: &[Scope],
        expires: Option<i64>,
    ) -> Result<(String, Secret)> {
        if name.trim().is_empty() {
            return Err(Error::Invalid(
                "a token needs a name, by which the audit log names its requests".to_owned(),
            ));
        }
        let id = new_id()?;
        let secret = Secret::random()?;
        let hash = hash(secret.reveal());
        let scopes: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
        let scopes = scopes.join(" ");
        transact!(self, connection => {
            let insert = "INSERT INTO tokens (id, name, hash, scopes, created, expires) VALUES ($1, $2, $3, $4, $5, $6)";
            sqlx::query(insert)
                .bind(&id)
                .bind(name)
                .bind(hash.as_deref())
                .bind(&scopes)
                .bind(clock::now())
                .bind(expires)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })?;
        Ok((id, secret))
    }

    /// Returns the valid token of a secret, and notes its use.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn token(&self, secret: &str) -> Result<Option<Token>> {
        let Some(hash) = hash(secret) else {
            return Ok(None);
        };
        let now = clock::now();
        let found = sqlx::query("SELECT * FROM tokens WHERE hash = $1")
            .bind(&hash)
            .fetch_optional(self.reader())
            .await?;
        let Some(token) = found.as_ref().map(Token::read).transpose()? else {
            return Ok(None);
        };
        if token.revoked.is_some() || token.expires.is_some_and(|expires| expires <= now) {
            return Ok(None);
        }
        if token.last_used.is_none_or(|used| used + USE_INTERVAL < now) {
            transact!(self, connection => {
                sqlx::query("UPDATE tokens SET last_used = $1 WHERE hash = $2")
                    .bind(now)
                    .bind(&hash)
                    .execute(&mut *connection)
                    .await?;
                Ok(())
            })?;
        }
        Ok(Some(token))
    }

    /// Returns all tokens, the newest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn tokens(&self) -> Result<Vec<Token>> {
        let rows = sqlx::query("SELECT * FROM tokens ORDER BY created DESC, id LIMIT 1000")
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(Token::read).collect()
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// Fails if there is no such token, or the database fails.
    pub async fn revoke_token(&self, id: &str) -> Result<()> {
        transact!(self, connection => {
            let changed = sqlx::query("UPDATE tokens SET revoked = $1 WHERE id = $2 AND revoked IS NULL")
                .bind(clock::now())
                .bind(id)
                .execute(&mut *connection)
                .await?;
            if changed.rows_affected() == 0 {
                return Err(Error::Absent(format!("valid token {id}")));
            }
            Ok(())
        })
    }
}

/// Returns a new random identifier of a row.
///
/// # Errors
/// Fails if the system has no random bytes.
pub fn new_id() -> Result<String> {
    let id = ReportId::random().map_err(Error::system("get random bytes"))?;
    Ok(id.into())
}
