//! Scheduled queries and their runs.

use super::Database;
use super::tokens::new_id;
use super::{audit, transact};
use crate::clock;
use crate::error::{Error, Result};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

/// The most jobs.
pub const MAX_JOBS: i64 = 200;
/// The time for which runs are known.
const KNOWN: i64 = 90 * clock::DAY;
/// The runs of a job that are known.
pub const KNOWN_RUNS: i64 = 1000;
/// The runs of a job whose rows are kept.
const KEPT_RESULTS: i64 = 50;
/// The time for which an announced function is known.
const KNOWN_FINDINGS: i64 = 365 * clock::DAY;

/// The condition of a job that is due at the time `$1`.
macro_rules! due {
    () => {
        "run IS NULL AND ((enabled = 1 AND next_run <= $1) OR run_now = 1)"
    };
}

/// A job as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The identifier.
    pub id: String,
    /// The name, which is unique.
    pub name: String,
    /// The definition as JSON.
    pub definition: String,
    /// Whether the schedule is in force.
    pub is_enabled: bool,
    /// The person or token that made it.
    pub author: String,
    /// The time of its creation.
    pub created: i64,
    /// The number of changes of the definition.
    pub revision: i64,
    /// The time of the next run by the schedule.
    pub next_run: i64,
    /// Whether a person wants a run now.
    pub is_wanted: bool,
    /// The present run.
    pub run: Option<String>,
    /// The time since which the threshold is crossed.
    pub alerting: Option<i64>,
    /// The time since which runs fail.
    pub failing: Option<i64>,
}

impl JobRow {
    fn read(row: &AnyRow) -> Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            definition: row.try_get("definition")?,
            is_enabled: row.try_get::<i64, _>("enabled")? == 1,
            author: row.try_get("author")?,
            created: row.try_get("created")?,
            revision: row.try_get("revision")?,
            next_run: row.try_get("next_run")?,
            is_wanted: row.try_get::<i64, _>("run_now")? == 1,
            run: row.try_get("run")?,
            alerting: row.try_get("alerting")?,
            failing: row.try_get("failing")?,
        })
    }
}

/// The parts of a job that its definition decides.
#[derive(Clone, Copy, Debug)]
pub struct JobText<'a> {
    /// The name.
    pub name: &'a str,
    /// The definition as JSON.
    pub definition: &'a str,
    /// Whether the schedule is in force.
    pub is_enabled: bool,
    /// The time of the next run by the schedule.
    pub next_run: i64,
}

/// A run of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// The identifier.
    pub id: String,
    /// `schedule` or `person`.
    pub origin: String,
    /// The start.
    pub started: i64,
    /// The end. `None`: it runs.
    pub ended: Option<i64>,
    /// `running`, `done` or `failed`.
    pub state: String,
    /// The watched number as text.
    pub value: Option<String>,
    /// The rows of the result before the limit.
    pub row_count: i64,
    /// The reason of a failure.
    pub problem: Option<String>,
}

impl RunRow {
    fn read(row: &AnyRow) -> Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            origin: row.try_get("origin")?,
            started: row.try_get("started")?,
            ended: row.try_get("ended")?,
            state: row.try_get("state")?,
            value: row.try_get("value")?,
            row_count: row.try_get("row_count")?,
            problem: row.try_get("problem")?,
        })
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd<'a> {
    /// The job.
    pub job: &'a str,
    /// The run.
    pub run: &'a str,
    /// The time.
    pub time: i64,
    /// The watched number as text.
    pub value: Option<&'a str>,
    /// The rows of the result before the limit.
    pub row_count: i64,
    /// Columns, rows and notes as JSON.
    pub result: Option<&'a str>,
    /// The reason of a failure. `None`: the run is done.
    pub problem: Option<&'a str>,
    /// The time since which the threshold is crossed.
    pub alerting: Option<i64>,
    /// The time since which runs fail.
    pub failing: Option<i64>,
}

impl Database {
    /// Adds a job, and returns its identifier.
    ///
    /// # Errors
    /// Fails if there are too many jobs, the name is taken, or the database fails.
    pub async fn add_query_job(&self, job: &JobText<'_>, author: &str, now: i64) -> Result<String> {
        let id = new_id()?;
        transact!(self, connection => {
            let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM query_jobs")
                .fetch_one(&mut *connection)
                .await?;
            if count >= MAX_JOBS {
                return Err(Error::Conflict(format!(
                    "there are {MAX_JOBS} jobs, which is the most; delete one first"
                )));
            }
            let insert = "INSERT INTO query_jobs (id, name, definition, enabled, author, created, revision, next_run, \
                          run_now, lease_until) VALUES ($1, $2, $3, $4, $5, $6, 0, $7, 0, 0) \
                          ON CONFLICT (name) DO NOTHING";
            let done = sqlx::query(insert)
                .bind(&id)
                .bind(job.name)
                .bind(job.definition)
                .bind(i64::from(job.is_enabled))
                .bind(author)
                .bind(now)
                .bind(job.next_run)
                .execute(&mut *connection)
                .await?;
            if done.rows_affected() == 0 {
                return Err(taken(job.name));
            }
            audit::add(connection, author, "add job", &id).await
        })?;
        Ok(id)
    }

    /// Replaces the definition of a job. `is_reset`: the threshold is another one, so that it is
    /// not crossed until a run finds so.
    ///
    /// # Errors
    /// Fails if there is no such job, the name is taken, or the database fails.
    pub async fn change_query_job(
        &self,
        id: &str,
        job: &JobText<'_>,
        is_reset: bool,
        actor: &str,
    ) -> Result<()> {
        transact!(self, connection => {
            let other: Option<String> = sqlx::query_scalar("SELECT id FROM query_jobs WHERE name = $1 AND id <> $2")
                .bind(job.name)
                .bind(id)
                .fetch_optional(&mut *connection)
                .await?;
            if other.is_some() {
                return Err(taken(job.name));
            }
            let update = "UPDATE query_jobs SET name = $1, definition = $2, enabled = $3, next_run = $4, \
                          revision = revision + 1, alerting = CASE WHEN $5 = 1 THEN NULL ELSE alerting END \
                          WHERE id = $6";
            let done = sqlx::query(update)
                .bind(job.name)
                .bind(job.definition)
                .bind(i64::from(job.is_enabled))
                .bind(job.next_run)
                .bind(i64::from(is_reset))
                .bind(id)
                .execute(&mut *connection)
                .await?;
            match done.rows_affected() {
                0 => Err(absent(id)),
                _ => audit::add(connection, actor, "change job", id).await,
            }
        })
    }

    /// Deletes a job with its runs.
    ///
    /// # Errors
    /// Fails if there is no such job, or the database fails.
    pub async fn delete_query_job(&self, id: &str, actor: &str) -> Result<()> {
        transact!(self, connection => {
            let name: Option<String> = sqlx::query_scalar("DELETE FROM query_jobs WHERE id = $1 RETURNING name")
                .bind(id)
                .fetch_optional(&mut *connection)
                .await?;
            let Some(name) = name else {
                return Err(absent(id));
            };
            for delete in [
                "DELETE FROM query_job_runs WHERE job = $1",
                "DELETE FROM query_job_findings WHERE job = $1",
            ] {
                sqlx::query(delete).bind(id).execute(&mut *connection).await?;
            }
            audit::add(connection, actor, "delete job", &name).await
        })
    }

    /// Notes that a person wants a run now.
    ///
    /// # Errors
    /// Fails if there is no such job, or the database fails.
    pub async fn want_query_job(&self, id: &str, actor: &str) -> Result<()> {
        transact!(self, connection => {
            let done = sqlx::query("UPDATE query_jobs SET run_now = 1 WHERE id = $1")
                .bind(id)
                .execute(&mut *connection)
                .await?;
            match done.rows_affected() {
                0 => Err(absent(id)),
                _ => audit::add(connection, actor, "run job", id).await,
            }
        })
    }

    /// Returns all jobs by name.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn query_jobs(&self) -> Result<Vec<JobRow>> {
        let rows = sqlx::query("SELECT * FROM query_jobs ORDER BY name LIMIT $1")
            .bind(MAX_JOBS)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(JobRow::read).collect()
    }

    /// Returns a job.
    ///
    /// # Errors
    /// Fails if there is no such job, or the database fails.
    pub async fn query_job(&self, id: &str) -> Result<JobRow> {
        let row = sqlx::query("SELECT * FROM query_jobs WHERE id = $1")
            .bind(id)
            .fetch_optional(self.reader())
            .await?
            .ok_or_else(|| absent(id))?;
        JobRow::read(&row)
    }

    /// Returns the jobs that are due, the earliest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn due_query_jobs(&self, now: i64) -> Result<Vec<JobRow>> {
        let select = concat!(
            "SELECT * FROM query_jobs WHERE ",
            due!(),
            " ORDER BY next_run, id LIMIT $2"
        );
        let rows = sqlx::query(select)
            .bind(now)
            .bind(MAX_JOBS)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(JobRow::read).collect()
    }

    /// Claims a due job for a hub until a time, and begins its run. `None`: another hub was faster,
    /// or the job was changed.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn claim_query_job(
        &self,
        job: &JobRow,
        next_run: i64,
        now: i64,
        until: i64,
    ) -> Result<Option<String>> {
        let run = new_id()?;
        let update = concat!(
            "UPDATE query_jobs SET run = $2, lease_until = $3, next_run = $4, run_now = 0 \
             WHERE id = $5 AND revision = $6 AND ",
            due!()
        );
        let is_scheduled = job.is_enabled && job.next_run <= now;
        transact!(self, connection => {
            let done = sqlx::query(update)
                .bind(now)
                .bind(&run)
                .bind(until)
                .bind(next_run)
                .bind(&job.id)
                .bind(job.revision)
                .execute(&mut *connection)
                .await?;
            if done.rows_affected() == 0 {
                return Ok(None);
            }
            let insert = "INSERT INTO query_job_runs (id, job, origin, started, state, row_count) \
                          VALUES ($1, $2, $3, $4, 'running', 0)";
            sqlx::query(insert)
                .bind(&run)
                .bind(&job.id)
                .bind(if is_scheduled { "schedule" } else { "person" })
                .bind(now)
                .execute(&mut *connection)
                .await?;
            Ok(Some(run.clone()))
        })
    }

    /// Extends the claim of a run. Returns whether this hub still has it.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn renew_query_job(&self, job: &str, run: &str, until: i64) -> Result<bool> {
        transact!(self, connection => {
            let done = sqlx::query("UPDATE query_jobs SET lease_until = $1 WHERE id = $2 AND run = $3")
                .bind(until)
                .bind(job)
                .bind(run)
                .execute(&mut *connection)
                .await?;
            Ok(done.rows_affected() == 1)
        })
    }

    /// Returns the jobs whose run has lost its hub.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn abandoned_query_jobs(&self, now: i64) -> Result<Vec<JobRow>> {
        let select = "SELECT * FROM query_jobs WHERE run IS NOT NULL AND lease_until <= $1 LIMIT $2";
        let rows = sqlx::query(select)
            .bind(now)
            .bind(MAX_JOBS)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(JobRow::read).collect()
    }

    /// Ends the claims of all runs: the hub that had them is known to have ended.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn end_query_job_claims(&self) -> Result<()> {
        transact!(self, connection => {
            sqlx::query("UPDATE query_jobs SET lease_until = 0 WHERE run IS NOT NULL")
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Returns the latest runs of a job, the newest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn query_job_runs(&self, job: &str, limit: i64) -> Result<Vec<RunRow>> {
        let select = "SELECT id, origin, started, ended, state, value, row_count, problem \
                      FROM query_job_runs WHERE job = $1 ORDER BY started DESC, id LIMIT $2";
        let rows = sqlx::query(select)
            .bind(job)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(RunRow::read).collect()
    }

    /// Returns a run, and its result as JSON.
    ///
    /// # Errors
    /// Fails if there is no such run, or the database fails.
    pub async fn query_job_run(&self, job: &str, run: &str) -> Result<(RunRow, Option<String>)> {
        let row = sqlx::query("SELECT * FROM query_job_runs WHERE job = $1 AND id = $2")
            .bind(job)
            .bind(run)
            .fetch_optional(self.reader())
            .await?
            .ok_or_else(|| Error::Absent(format!("run {run} of job {job}")))?;
        Ok((RunRow::read(&row)?, row.try_get("result")?))
    }

    /// Returns the latest run of a job that has a result, and that result.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn last_query_job_result(&self, job: &str) -> Result<Option<(RunRow, String)>> {
        let select = "SELECT * FROM query_job_runs WHERE job = $1 AND result IS NOT NULL \
                      ORDER BY started DESC, id LIMIT 1";
        let row = sqlx::query(select)
            .bind(job)
            .fetch_optional(self.reader())
            .await?;
        let read = |row: AnyRow| Ok((RunRow::read(&row)?, row.try_get("result")?));
        row.map(read).transpose()
    }
}

fn taken(name: &str) -> Error {
    Error::Conflict(format!("another job has the name \"{name}\"; choose another one"))
}

fn absent(id: &str) -> Error {
    Error::Absent(format!("job {id}"))
}

/// Returns a job whose run is this one, within the transaction that ends it. `None`: the job was
/// deleted, or another hub ended the run.
///
/// # Errors
/// Fails if the database fails.
pub async fn running(connection: &mut AnyConnection, job: &str, run: &str) -> Result<Option<JobRow>> {
    // The written row is locked until the end of the transaction.
    let update = "UPDATE query_jobs SET run = run WHERE id = $1 AND run = $2 RETURNING *";
    let row = sqlx::query(update)
        .bind(job)
        .bind(run)
        .fetch_optional(&mut *connection)
        .await?;
    row.as_ref().map(JobRow::read).transpose()
}

/// Ends a run, and removes what is too old.
///
/// # Errors
/// Fails if the database fails.
pub async fn end(connection: &mut AnyConnection, end: &RunEnd<'_>) -> Result<()> {
    let update = "UPDATE query_job_runs SET state = $1, ended = $2, value = $3, row_count = $4, result = $5, \
                  problem = $6 WHERE id = $7";
    sqlx::query(update)
        .bind(if end.problem.is_some() { "failed" } else { "done" })
        .bind(end.time)
        .bind(end.value)
        .bind(end.row_count)
        .bind(end.result)
        .bind(end.problem)
        .bind(end.run)
        .execute(&mut *connection)
        .await?;
    let update =
        "UPDATE query_jobs SET run = NULL, lease_until = 0, alerting = $1, failing = $2 WHERE id = $3";
    sqlx::query(update)
        .bind(end.alerting)
        .bind(end.failing)
        .bind(end.job)
        .execute(&mut *connection)
        .await?;
    sqlx::query("DELETE FROM query_job_runs WHERE job = $1 AND started < $2")
        .bind(end.job)
        .bind(end.time - KNOWN)
        .execute(&mut *connection)
        .await?;
    // Runs before the one that is the oldest to keep.
    let nth = "(SELECT started FROM query_job_runs WHERE job = $1 ORDER BY started DESC LIMIT 1 OFFSET $2)";
    for (statement, kept) in [
        (
            "DELETE FROM query_job_runs WHERE job = $1 AND started <= ",
            KNOWN_RUNS,
        ),
        (
            "UPDATE query_job_runs SET result = NULL WHERE job = $1 AND result IS NOT NULL AND started <= ",
            KEPT_RESULTS,
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(format!("{statement}{nth}")))
            .bind(end.job)
            .bind(kept)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Notes that a function is announced. Returns whether it was not known.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_finding(connection: &mut AnyConnection, id: &str, job: &str, now: i64) -> Result<bool> {
    let insert =
        "INSERT INTO query_job_findings (id, job, found) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING";
    let done = sqlx::query(insert)
        .bind(id)
        .bind(job)
        .bind(now)
        .execute(&mut *connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Removes announced functions that are too old to be compared again.
///
/// # Errors
/// Fails if the database fails.
pub async fn forget_findings(connection: &mut AnyConnection, job: &str, now: i64) -> Result<()> {
    sqlx::query("DELETE FROM query_job_findings WHERE job = $1 AND found < $2")
        .bind(job)
        .bind(now - KNOWN_FINDINGS)
        .execute(&mut *connection)
        .await?;
    Ok(())
}
