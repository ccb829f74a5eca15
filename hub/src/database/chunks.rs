//! Chunks of debug files, and files made of them.

use super::Database;
use super::jobs::{self, Job, JobKind};
use crate::clock;
use crate::database::transact;
use crate::error::Result;
use sqlx::AnyConnection;
use sqlx::Row;

/// How far the assembly of a file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblyState {
    /// A job makes it.
    Assembling,
    /// Stored.
    Stored,
    /// Refused.
    Refused,
}

impl AssemblyState {
    const ALL: [Self; 3] = [Self::Assembling, Self::Stored, Self::Refused];

    /// Returns the name, as Sentry's API has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assembling => "assembling",
            Self::Stored => "ok",
            Self::Refused => "error",
        }
    }
}

/// A file made of chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The SHA-1 of the whole.
    pub sha1: String,
    /// Its name.
    pub name: String,
    /// The identifier that the client read in the file.
    pub debug_id: Option<String>,
    /// The SHA-1 of each chunk, in order.
    pub chunks: Vec<String>,
    /// The name of the token that asked for it.
    pub sender: String,
    /// How far it has come.
    pub state: AssemblyState,
    /// The reason for which it is refused.
    pub detail: Option<String>,
    /// The build id, once it is stored.
    pub build_id: Option<String>,
    /// The time of the last change.
    pub changed: i64,
}

/// Ends an assembly within a transaction.
///
/// # Errors
/// Fails if the database fails.
pub async fn end_assembly(
    connection: &mut AnyConnection,
    sha1: &str,
    result: std::result::Result<&str, &str>,
) -> Result<()> {
    let (state, build_id, detail) = match result {
        Ok(build_id) => (AssemblyState::Stored, Some(build_id), None),
        Err(reason) => (AssemblyState::Refused, None, Some(reason)),
    };
    sqlx::query("UPDATE assemblies SET state = $1, build_id = $2, detail = $3, changed = $4 WHERE sha1 = $5")
        .bind(state.name())
        .bind(build_id)
        .bind(detail)
        .bind(clock::now())
        .bind(sha1)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Forgets a chunk whose life ended before a time, unless it was prolonged in between. Returns
/// whether it is forgotten. No process can note the chunk before the transaction ends.
///
/// # Errors
/// Fails if the database fails.
pub async fn delete(connection: &mut AnyConnection, sha1: &str, before: i64) -> Result<bool> {
    let deleted = sqlx::query("DELETE FROM chunks WHERE sha1 = $1 AND expires < $2")
        .bind(sha1)
        .bind(before)
        .execute(&mut *connection)
        .await?;
    Ok(deleted.rows_affected() > 0)
}

impl Database {
    /// Notes a chunk that is in the object store.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn note_chunk(&self, sha1: &str, size: i64, lifetime: i64) -> Result<()> {
        transact!(self, connection => {
            let upsert = "INSERT INTO chunks (sha1, size, expires) VALUES ($1, $2, $3) \
                          ON CONFLICT (sha1) DO UPDATE SET expires = $3";
            sqlx::query(upsert)
                .bind(sha1)
                .bind(size)
                .bind(clock::now() + lifetime)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Returns the size of a chunk whose life has not ended. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn chunk_size(&self, sha1: &str) -> Result<Option<i64>> {
        let select = "SELECT size FROM chunks WHERE sha1 = $1 AND expires > $2";
        Ok(sqlx::query_scalar(select)
            .bind(sha1)
            .bind(clock::now())
            .fetch_optional(self.reader())
            .await?)
    }

    /// Returns whether there is a chunk, expired or not.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn has_chunk(&self, sha1: &str) -> Result<bool> {
        let found = sqlx::query("SELECT sha1 FROM chunks WHERE sha1 = $1")
            .bind(sha1)
            .fetch_optional(self.reader())
            .await?;
        Ok(found.is_some())
    }

    /// Prolongs the lives of chunks, or shortens them.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn set_chunk_lives(&self, chunks: &[String], lifetime: i64) -> Result<()> {
        transact!(self, connection => {
            for sha1 in chunks {
                sqlx::query("UPDATE chunks SET expires = $1 WHERE sha1 = $2")
                    .bind(clock::now() + lifetime)
                    .bind(sha1)
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
    }

    /// Returns chunks whose life ended before a time.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn expired_chunks(&self, before: i64, limit: i64) -> Result<Vec<String>> {
        Ok(
            sqlx::query_scalar("SELECT sha1 FROM chunks WHERE expires < $1 LIMIT $2")
                .bind(before)
                .bind(limit)
                .fetch_all(self.reader())
                .await?,
        )
    }

    /// Returns an assembly. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn assembly(&self, sha1: &str) -> Result<Option<Assembly>> {
        let found = sqlx::query("SELECT * FROM assemblies WHERE sha1 = $1")
            .bind(sha1)
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = found else {
            return Ok(None);
        };
        let (state, chunks): (String, String) = (row.try_get("state")?, row.try_get("chunks")?);
        let state = AssemblyState::ALL.into_iter().find(|one| one.name() == state);
        Ok(Some(Assembly {
            sha1: row.try_get("sha1")?,
            name: row.try_get("name")?,
            debug_id: row.try_get("debug_id")?,
            chunks: serde_json::from_str(&chunks).unwrap_or_default(),
            sender: row.try_get("sender")?,
            state: state.unwrap_or(AssemblyState::Refused),
            detail: row.try_get("detail")?,
            build_id: row.try_get("build_id")?,
            changed: row.try_get("changed")?,
        }))
    }

    /// Begins an assembly, and adds the job for it. An earlier one of the same file is forgotten,
    /// unless it is under way.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn begin_assembly(&self, new: &Assembly) -> Result<()> {
        let chunks = serde_json::to_string(&new.chunks).unwrap_or_default();
        transact!(self, connection => {
            let upsert = "INSERT INTO assemblies (sha1, name, debug_id, chunks, sender, state, changed) \
                          VALUES ($1, $2, $3, $4, $5, 'assembling', $6) ON CONFLICT (sha1) DO UPDATE SET \
                          name = $2, debug_id = $3, chunks = $4, sender = $5, state = 'assembling', detail = NULL, \
                          build_id = NULL, changed = $6 WHERE assemblies.state <> 'assembling'";
            sqlx::query(upsert)
                .bind(&new.sha1)
                .bind(&new.name)
                .bind(new.debug_id.as_deref())
                .bind(&chunks)
                .bind(&new.sender)
                .bind(clock::now())
                .execute(&mut *connection)
                .await?;
            jobs::add(connection, JobKind::Assemble, &new.sha1, 0).await
        })
    }

    /// Ends an assembly whose file is refused, and its job.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn refuse_assembly(&self, job: &Job, sha1: &str, reason: &str) -> Result<()> {
        transact!(self, connection => {
            jobs::finish(connection, job).await?;
            end_assembly(connection, sha1, Err(reason)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::jobs::JobQueue;

    #[tokio::test]
    async fn assemblies_are_made_once_and_again_after_a_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite://{}?mode=rwc", folder.path().join("hub.db").display());
        let database = Database::open(&address).await.unwrap();
        let new = Assembly {
            sha1: "a".repeat(40),
            name: "ledger".to_owned(),
            debug_id: None,
            chunks: vec!["b".repeat(40)],
            sender: "ci".to_owned(),
            state: AssemblyState::Assembling,
            detail: None,
            build_id: None,
            changed: 0,
        };
        database.begin_assembly(&new).await.unwrap();
        database.begin_assembly(&new).await.unwrap();
        assert_eq!(database.job_count().await.unwrap(), 1);
        let job = database.lease_job(JobQueue::Work).await.unwrap().unwrap();
        assert_eq!((job.kind, &job.subject), (JobKind::Assemble, &new.sha1));
        database
            .refuse_assembly(&job, &new.sha1, "no ELF file")
            .await
            .unwrap();
        let found = database.assembly(&new.sha1).await.unwrap().unwrap();
        assert_eq!(found.state, AssemblyState::Refused);
        assert_eq!(found.detail.as_deref(), Some("no ELF file"));
        assert_eq!(found.chunks, new.chunks);
        database.begin_assembly(&new).await.unwrap();
        let found = database.assembly(&new.sha1).await.unwrap().unwrap();
        assert_eq!((found.state, found.detail), (AssemblyState::Assembling, None));
    }

    #[tokio::test]
    async fn chunks_live_for_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite://{}?mode=rwc", folder.path().join("hub.db").display());
        let database = Database::open(&address).await.unwrap();
        database.note_chunk("a", 7, clock::HOUR).await.unwrap();
        assert_eq!(database.chunk_size("a").await.unwrap(), Some(7));
        let now = clock::now();
        let forget = async |before: i64| {
            let deleted = transact!(database, connection => { delete(connection, "a", before).await });
            deleted.unwrap()
        };
        assert!(!forget(now).await);
        database
            .set_chunk_lives(&["a".to_owned()], -clock::HOUR)
            .await
            .unwrap();
        assert_eq!(database.chunk_size("a").await.unwrap(), None);
        assert_eq!(database.expired_chunks(now, 9).await.unwrap(), ["a"]);
        assert!(!forget(now - 2 * clock::HOUR).await);
        assert!(forget(now).await);
    }
}
