//! Changes of jobs by people and programs.

use super::definition::JobDefinition;
use crate::database::query_jobs::{JobRow, JobText};
use crate::error::Result;
use crate::hub::Hub;

/// A job with its definition.
#[derive(Clone, Debug)]
pub struct Job {
    /// The row.
    pub row: JobRow,
    /// The definition. The reason for which it cannot be read: a newer hub wrote it.
    pub definition: std::result::Result<JobDefinition, String>,
}

impl From<JobRow> for Job {
    fn from(row: JobRow) -> Self {
        Self {
            definition: JobDefinition::read(&row.definition).map_err(|error| error.to_string()),
            row,
        }
    }
}

/// Adds a job, and returns its identifier.
///
/// # Errors
/// Fails if the definition is impossible, the name is taken, or the database fails.
pub async fn add(hub: &Hub, job: &JobDefinition, actor: &str, now: i64) -> Result<String> {
    job.check(now)?;
    let definition = job.to_text()?;
    hub.database
        .add_query_job(&text(job, &definition, now), actor, now)
        .await
}

/// Replaces the definition of a job. Another query or threshold begins without an alert.
///
/// # Errors
/// Fails if the definition is impossible, there is no such job, the name is taken, or the database
/// fails.
pub async fn change(hub: &Hub, id: &str, job: &JobDefinition, actor: &str, now: i64) -> Result<()> {
    job.check(now)?;
    let before = JobDefinition::read(&hub.database.query_job(id).await?.definition);
    let is_reset = before.map_or(true, |before| {
        (&before.query, &before.threshold) != (&job.query, &job.threshold)
    });
    let definition = job.to_text()?;
    hub.database
        .change_query_job(id, &text(job, &definition, now), is_reset, actor)
        .await
}

/// Lets a job run as soon as a hub is free.
///
/// # Errors
/// Fails if there is no such job, or the database fails.
pub async fn run_now(hub: &Hub, id: &str, actor: &str) -> Result<()> {
    hub.database.want_query_job(id, actor).await?;
    hub.wake_jobs.notify_one();
    Ok(())
}

fn text<'a>(job: &'a JobDefinition, definition: &'a str, now: i64) -> JobText<'a> {
    JobText {
        name: &job.name,
        definition,
        is_enabled: job.enabled,
        next_run: job.schedule.next(now),
    }
}
