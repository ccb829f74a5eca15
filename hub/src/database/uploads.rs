//! Resumable uploads: how much of each has arrived.

use super::Database;
use super::jobs::{self, JobKind};
use super::reports::{self, BundleState};
use super::tokens::new_id;
use crate::clock;
use crate::database::transact;
use crate::error::{Error, Result};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

/// The uploads whose life has ended at the time `$1`.
const EXPIRED: &str = "expires < $1 AND (state = 'open' OR NOT EXISTS \
                       (SELECT 1 FROM jobs WHERE jobs.kind = 'accept' AND jobs.subject = uploads.id))";

/// The kind of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadKind {
    /// The bundle of a report, packed.
    Bundle,
    /// An executable or debug file.
    Debug,
}

impl UploadKind {
    /// Returns the name, as `Upload-Metadata` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Debug => "debug",
        }
    }

    /// Returns the kind of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Bundle, Self::Debug]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// An upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Its identifier.
    pub id: String,
    /// Its kind.
    pub kind: UploadKind,
    /// The report or the build id.
    pub subject: String,
    /// The SHA-256 of the whole.
    pub sha256: String,
    /// The size in bytes.
    pub length: i64,
    /// The bytes that have arrived.
    pub received: i64,
    /// The number of parts that have arrived.
    pub parts: i64,
    /// The end of its life, unless more arrives.
    pub expires: i64,
    /// The token that began it. No other may continue it.
    pub token: String,
    /// Whether all has arrived.
    pub is_complete: bool,
}

impl Upload {
    fn read(row: &AnyRow) -> Result<Self> {
        let kind: String = row.try_get("kind")?;
        let state: String = row.try_get("state")?;
        Ok(Self {
            id: row.try_get("id")?,
            kind: UploadKind::named(&kind).ok_or_else(|| Error::Absent(format!("upload of kind {kind}")))?,
            subject: row.try_get("subject")?,
            sha256: row.try_get("sha256")?,
            length: row.try_get("length")?,
            received: row.try_get("received")?,
            parts: row.try_get("parts")?,
            expires: row.try_get("expires")?,
            token: row.try_get("token")?,
            is_complete: state == "complete",
        })
    }
}

/// A wish to upload.
#[derive(Clone, Debug)]
pub struct NewUpload<'a> {
    /// Its kind.
    pub kind: UploadKind,
    /// The report or the build id.
    pub subject: &'a str,
    /// The SHA-256 of the whole.
    pub sha256: &'a str,
    /// The size in bytes.
    pub length: i64,
    /// The token.
    pub token: &'a str,
}

impl Database {
    /// Begins an upload. If the same was begun by the same token, returns that one.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn begin_upload(&self, new: &NewUpload<'_>, lifetime: i64) -> Result<Upload> {
        let id = new_id()?;
        transact!(self, connection => {
            let same = "SELECT * FROM uploads WHERE kind = $1 AND subject = $2 AND sha256 = $3 AND length = $4 AND token = $5";
            let found = sqlx::query(same)
                .bind(new.kind.name())
                .bind(new.subject)
                .bind(new.sha256)
                .bind(new.length)
                .bind(new.token)
                .fetch_optional(&mut *connection)
                .await?;
            if let Some(row) = found {
                return Upload::read(&row);
            }
            let insert = "INSERT INTO uploads (id, kind, subject, sha256, length, received, parts, expires, token, state) \
                          VALUES ($1, $2, $3, $4, $5, 0, 0, $6, $7, 'open') RETURNING *";
            let row = sqlx::query(insert)
                .bind(&id)
                .bind(new.kind.name())
                .bind(new.subject)
                .bind(new.sha256)
                .bind(new.length)
                .bind(clock::now() + lifetime)
                .bind(new.token)
                .fetch_one(&mut *connection)
                .await?;
            Upload::read(&row)
        })
    }

    /// Returns an upload.
    ///
    /// # Errors
    /// Fails if there is no such upload, or the database fails.
    pub async fn upload(&self, id: &str) -> Result<Upload> {
        let found = sqlx::query("SELECT * FROM uploads WHERE id = $1")
            .bind(id)
            .fetch_optional(self.reader())
            .await?;
        let row = found.ok_or_else(|| Error::Absent(format!("upload {id}")))?;
        Upload::read(&row)
    }

    /// Returns the upload of a report's bundle, if there is one.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn upload_of(&self, report: &str) -> Result<Option<Upload>> {
        let select =
            "SELECT * FROM uploads WHERE subject = $1 AND kind = 'bundle' ORDER BY received DESC LIMIT 1";
        let found = sqlx::query(select)
            .bind(report)
            .fetch_optional(self.reader())
            .await?;
        found.as_ref().map(Upload::read).transpose()
    }

    /// Adds a part that is in the object store by its name, and returns the upload after it. After
    /// the last part, a job checks the whole.
    ///
    /// # Errors
    /// Fails if another request added a part in between, or the database fails.
    pub async fn add_part(
        &self,
        upload: &Upload,
        (name, size): (&str, i64),
        lifetime: i64,
    ) -> Result<Upload> {
        let after: Result<Upload> = transact!(self, connection => {
            let update = "UPDATE uploads SET received = received + $1, parts = parts + 1, expires = $2, \
                          state = CASE WHEN received + $1 = length THEN 'complete' ELSE 'open' END \
                          WHERE id = $3 AND parts = $4 AND received + $1 <= length RETURNING *";
            let row = sqlx::query(update)
                .bind(size)
                .bind(clock::now() + lifetime)
                .bind(&upload.id)
                .bind(upload.parts)
                .fetch_optional(&mut *connection)
                .await?;
            let row = row.ok_or_else(|| {
                Error::Conflict("another request continued this upload; ask for its offset".to_owned())
            })?;
            sqlx::query("INSERT INTO upload_parts (upload, number, name) VALUES ($1, $2, $3)")
                .bind(&upload.id)
                .bind(upload.parts)
                .bind(name)
                .execute(&mut *connection)
                .await?;
            let after = Upload::read(&row)?;
            if after.is_complete {
                if after.kind == UploadKind::Bundle {
                    let from = [
                        BundleState::None,
                        BundleState::Wanted,
                        BundleState::Refused,
                        BundleState::Removed,
                    ];
                    let subject = &after.subject;
                    let _ = reports::set_bundle(connection, subject, &from, BundleState::Checking, None, None).await?;
                }
                jobs::add(connection, JobKind::Accept, &after.id, 0).await?;
            }
            Ok(after)
        });
        let after = after?;
        if after.is_complete {
            // The sender forgets the file after the answer.
            self.flush().await?;
        }
        Ok(after)
    }

    /// Returns the names of an upload's parts, in their order.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn part_names(&self, upload: &str) -> Result<Vec<String>> {
        let select = "SELECT name FROM upload_parts WHERE upload = $1 ORDER BY number";
        Ok(sqlx::query_scalar(select)
            .bind(upload)
            .fetch_all(self.reader())
            .await?)
    }

    /// Returns uploads whose life has ended at a time. A complete one lives as long as its job.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn expired_uploads(&self, now: i64, limit: i64) -> Result<Vec<Upload>> {
        let select = format!("SELECT * FROM uploads WHERE {EXPIRED} LIMIT $2");
        let rows = sqlx::query(AssertSqlSafe(select))
            .bind(now)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(Upload::read).collect()
    }

    /// Forgets an upload if its life has ended. Returns whether it is forgotten.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn delete_expired_upload(&self, id: &str, now: i64) -> Result<bool> {
        let select = format!("SELECT id FROM uploads WHERE {EXPIRED} AND id = $2");
        transact!(self, connection => {
            let found = sqlx::query(AssertSqlSafe(select.clone()))
                .bind(now)
                .bind(id)
                .fetch_optional(&mut *connection)
                .await?;
            if found.is_some() {
                delete(connection, id).await?;
            }
            Ok(found.is_some())
        })
    }

    /// Forgets an upload.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn delete_upload(&self, id: &str) -> Result<()> {
        transact!(self, connection => { delete(connection, id).await })
    }
}

/// Forgets an upload within a transaction. Its objects are garbage then.
///
/// # Errors
/// Fails if the database fails.
pub async fn delete(connection: &mut AnyConnection, id: &str) -> Result<()> {
    for statement in [
        "DELETE FROM upload_parts WHERE upload = $1",
        "DELETE FROM uploads WHERE id = $1",
    ] {
        sqlx::query(statement).bind(id).execute(&mut *connection).await?;
    }
    Ok(())
}
