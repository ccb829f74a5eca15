//! Jobs: work off the request path, leased to one hub at a time.

use super::Database;
use super::tokens::new_id;
use crate::clock;
use crate::database::transact;
use crate::error::Result;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

/// The time after which another hub takes over a job whose hub renews nothing.
const LEASE: i64 = 15 * clock::SECOND;
/// The longest time between two attempts.
const LONGEST_PAUSE: i64 = clock::HOUR;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// To check an uploaded bundle, and to store it.
    Accept,
    /// To read a stored bundle again, with new symbols.
    Analyze,
    /// To announce a new group whose bundle has not come.
    Announce,
    /// To make a debug file of its chunks.
    Assemble,
    /// To fetch a debug file from upstream servers.
    Fetch,
    /// To make the index of a build.
    Index,
    /// To group all keys again, after a change of rules or versions.
    Regroup,
}

impl JobKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Accept,
        Self::Analyze,
        Self::Announce,
        Self::Assemble,
        Self::Fetch,
        Self::Index,
        Self::Regroup,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Analyze => "analyze",
            Self::Announce => "announce",
            Self::Assemble => "assemble",
            Self::Fetch => "fetch",
            Self::Index => "index",
            Self::Regroup => "regroup",
        }
    }
}

/// Jobs that wait for the same places. A slow download must not hold up a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobQueue {
    /// Jobs that read files of hosts.
    Work,
    /// Announcements, which wait for no file.
    Alerts,
    /// Jobs that wait for upstream servers.
    Downloads,
    /// Jobs over all keys, which read the database only.
    Grouping,
}

impl JobQueue {
    /// Returns the condition for the kinds of jobs in the queue.
    const fn condition(self) -> &'static str {
        match self {
            Self::Work => "kind NOT IN ('announce', 'fetch', 'regroup')",
            Self::Alerts => "kind = 'announce'",
            Self::Downloads => "kind = 'fetch'",
            Self::Grouping => "kind = 'regroup'",
        }
    }
}

/// A leased job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its identifier.
    pub id: String,
    /// Its kind.
    pub kind: JobKind,
    /// A report, an upload, a group, the SHA-1 of a file, a build id or a revision, by kind.
    pub subject: String,
    /// The number of this attempt, from 1.
    pub attempt: i64,
    /// Where an earlier attempt ended.
    pub done_to: Option<String>,
    lease: String,
}

/// Adds a job, if there is none of this kind and subject.
///
/// # Errors
/// Fails if the database fails.
pub async fn add(connection: &mut AnyConnection, kind: JobKind, subject: &str, run_at: i64) -> Result<()> {
    let insert = "INSERT INTO jobs (id, kind, subject, run_at, attempts, lease_until) VALUES ($1, $2, $3, $4, 0, 0) \
                  ON CONFLICT (kind, subject) DO NOTHING";
    sqlx::query(insert)
        .bind(new_id()?)
        .bind(kind.name())
        .bind(subject)
        .bind(run_at)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Leases the next due job of a queue. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn lease_job(&self, queue: JobQueue) -> Result<Option<Job>> {
        let due = |now: u32| {
            let kinds = queue.condition();
            format!(
                "SELECT id FROM jobs WHERE {kinds} AND run_at <= ${now} AND lease_until <= ${now} ORDER BY run_at LIMIT 1"
            )
        };
        if sqlx::query(AssertSqlSafe(due(1)))
            .bind(clock::now())
            .fetch_optional(self.reader())
            .await?
            .is_none()
        {
            return Ok(None);
        }
        let lease = new_id()?;
        let update = format!(
            "UPDATE jobs SET lease = $1, lease_until = $2, attempts = attempts + 1 WHERE id = ({}) \
             AND lease_until <= $3 RETURNING id, kind, subject, attempts, done_to",
            due(3)
        );
        transact!(self, connection => {
            let now = clock::now();
            let row = sqlx::query(AssertSqlSafe(update.clone()))
                .bind(&lease)
                .bind(now + LEASE)
                .bind(now)
                .fetch_optional(&mut *connection)
                .await?;
            let Some(row) = row else {
                return Ok(None);
            };
            let kind: String = row.try_get("kind")?;
            let Some(kind) = JobKind::ALL.into_iter().find(|one| one.name() == kind) else {
                // A job of a newer hub. It is left to that hub.
                return Ok(None);
            };
            Ok(Some(Job {
                id: row.try_get("id")?,
                kind,
                subject: row.try_get("subject")?,
                attempt: row.try_get("attempts")?,
                done_to: row.try_get("done_to")?,
                lease: lease.clone(),
            }))
        })
    }

    /// Renews a lease. Returns whether this hub still has it.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn renew_lease(&self, job: &Job, progress: Option<&str>) -> Result<bool> {
        transact!(self, connection => {
            let update = "UPDATE jobs SET lease_until = $1, progress = $2 WHERE id = $3 AND lease = $4";
            let changed = sqlx::query(update)
                .bind(clock::now() + LEASE)
                .bind(progress)
                .bind(&job.id)
                .bind(&job.lease)
                .execute(&mut *connection)
                .await?;
            Ok(changed.rows_affected() == 1)
        })
    }

    /// Returns whether a job is there, whichever hub has it.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn has_job(&self, job: &Job) -> Result<bool> {
        let found = sqlx::query("SELECT id FROM jobs WHERE id = $1")
            .bind(&job.id)
            .fetch_optional(self.reader())
            .await?;
        Ok(found.is_some())
    }

    /// Ends a job for good.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn finish_job(&self, job: &Job) -> Result<()> {
        transact!(self, connection => { finish(connection, job).await })
    }

    /// Ends the leases of all jobs: the hub that had them is known to have ended.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn end_leases(&self) -> Result<()> {
        transact!(self, connection => {
            sqlx::query("UPDATE jobs SET lease = NULL, lease_until = 0 WHERE lease IS NOT NULL")
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Lets a failed job run again later: after 2, 4, 8 … seconds, and at most an hour.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn postpone_job(&self, job: &Job) -> Result<()> {
        let exponent = u32::try_from(job.attempt.clamp(1, 12)).unwrap_or(12);
        let pause = (clock::SECOND << exponent).min(LONGEST_PAUSE);
        transact!(self, connection => {
            sqlx::query(
                "UPDATE jobs SET run_at = $1, lease = NULL, lease_until = 0 WHERE id = $2 AND lease = $3",
            )
            .bind(clock::now() + pause)
            .bind(&job.id)
            .bind(&job.lease)
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
    }

    /// Returns the progress of a job, as its hub noted it.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn job_progress(&self, kind: JobKind, subject: &str) -> Result<Option<String>> {
        let found = sqlx::query_scalar("SELECT progress FROM jobs WHERE kind = $1 AND subject = $2")
            .bind(kind.name())
            .bind(subject)
            .fetch_optional(self.reader())
            .await?;
        Ok(found.flatten())
    }

    /// Returns how far the job has come that groups all keys again. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn regroup_done_to(&self) -> Result<Option<String>> {
        let select = "SELECT COALESCE(done_to, '') FROM jobs WHERE kind = 'regroup' AND subject = \
                      (SELECT revision FROM grouping_state WHERE id = 'grouping')";
        Ok(sqlx::query_scalar(select).fetch_optional(self.reader()).await?)
    }

    /// Returns the number of jobs that wait or run.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn job_count(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT COUNT(*) FROM jobs")
            .fetch_one(self.reader())
            .await?)
    }
}

/// Ends a job for good within a transaction. Fails if another hub has taken it over.
///
/// # Errors
/// Fails if the database fails, or the lease is lost.
pub async fn finish(connection: &mut AnyConnection, job: &Job) -> Result<()> {
    let deleted = sqlx::query("DELETE FROM jobs WHERE id = $1 AND lease = $2")
        .bind(&job.id)
        .bind(&job.lease)
        .execute(&mut *connection)
        .await?;
    if deleted.rows_affected() == 0 {
        return Err(crate::error::Error::Conflict(
            "another hub took over this job".to_owned(),
        ));
    }
    Ok(())
}

/// Notes how far a job has come, within a transaction that does a part of its work.
///
/// # Errors
/// Fails if the database fails, or another hub has taken the job over.
pub async fn set_done_to(connection: &mut AnyConnection, job: &Job, done_to: &str) -> Result<()> {
    let changed = sqlx::query("UPDATE jobs SET done_to = $1 WHERE id = $2 AND lease = $3")
        .bind(done_to)
        .bind(&job.id)
        .bind(&job.lease)
        .execute(&mut *connection)
        .await?;
    if changed.rows_affected() == 0 {
        return Err(crate::error::Error::Conflict(
            "another hub took over this job".to_owned(),
        ));
    }
    Ok(())
}
