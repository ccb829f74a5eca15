//! Jobs and their results as JSON.

use super::json::{Body, Parameters};
use crate::clock;
use crate::database::query_jobs::RunRow;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::query_jobs::definition::JobDefinition;
use crate::query_jobs::execute::JobResult;
use crate::query_jobs::manage::{self, Job};
use crate::server::caller::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The runs of a list unless the request names another number.
const RUNS: i64 = 100;

/// A job in JSON.
#[derive(Serialize)]
pub struct JobView {
    id: String,
    /// The definition. `None`: a newer hub wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<JobDefinition>,
    author: String,
    created: String,
    /// The time of the next run. `None`: the job is not enabled.
    next_run: Option<String>,
    is_running: bool,
    /// The time since which the threshold is crossed.
    alerting_since: Option<String>,
    /// The time since which runs fail.
    failing_since: Option<String>,
    /// The latest run.
    last_run: Option<RunView>,
}

/// A run in JSON.
#[derive(Serialize)]
pub struct RunView {
    id: String,
    /// `schedule` or `person`.
    origin: String,
    started: String,
    /// The length in seconds. `None`: it runs.
    seconds: Option<f64>,
    /// `running`, `done` or `failed`.
    state: String,
    /// The watched number.
    value: Option<f64>,
    /// The rows before the limit.
    row_count: i64,
    /// The reason of a failure.
    problem: Option<String>,
}

impl From<RunRow> for RunView {
    fn from(row: RunRow) -> Self {
        let length = row.ended.map(|ended| ended.saturating_sub(row.started));
        Self {
            id: row.id,
            origin: row.origin,
            started: clock::iso_date(row.started),
            seconds: length.map(|length| length as f64 / clock::SECOND as f64),
            state: row.state,
            value: row.value.and_then(|value| value.parse().ok()),
            row_count: row.row_count,
            problem: row.problem,
        }
    }
}

/// A run with its rows.
#[derive(Serialize)]
pub struct RunResultView {
    #[serde(flatten)]
    run: RunView,
    /// The result. `None`: there is none, or it is too old.
    result: Option<JobResult>,
}

async fn view(hub: &Hub, job: Job) -> Result<JobView> {
    let Job { row, definition } = job;
    let last = hub.database.query_job_runs(&row.id, 1).await?;
    Ok(JobView {
        id: row.id,
        definition: definition.ok(),
        author: row.author,
        created: clock::iso_date(row.created),
        next_run: row.is_enabled.then(|| clock::iso_date(row.next_run)),
        is_running: row.run.is_some(),
        alerting_since: row.alerting.map(clock::iso_date),
        failing_since: row.failing.map(clock::iso_date),
        last_run: last.into_iter().next().map(RunView::from),
    })
}

/// Lists jobs.
///
/// # Errors
/// Fails if the database fails.
pub async fn list(State(hub): State<Arc<Hub>>) -> Result<Json<Vec<JobView>>> {
    let mut views = Vec::new();
    for row in hub.database.query_jobs().await? {
        views.push(view(&hub, Job::from(row)).await?);
    }
    Ok(Json(views))
}

/// Returns a job.
///
/// # Errors
/// Fails if there is no such job, or the database fails.
pub async fn one(State(hub): State<Arc<Hub>>, Path(id): Path<String>) -> Result<Json<JobView>> {
    let row = hub.database.query_job(&id).await?;
    Ok(Json(view(&hub, Job::from(row)).await?))
}

/// Adds a job.
///
/// # Errors
/// Fails if the definition is impossible, the name is taken, or the database fails.
pub async fn add(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Body(job): Body<JobDefinition>,
) -> Result<(StatusCode, Json<JobView>)> {
    let id = manage::add(&hub, &job, &caller.name, clock::now()).await?;
    let Json(view) = one(State(hub), Path(id)).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

/// Replaces the definition of a job.
///
/// # Errors
/// Fails if the definition is impossible, there is no such job, the name is taken, or the database
/// fails.
pub async fn change(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Body(job): Body<JobDefinition>,
) -> Result<Json<JobView>> {
    manage::change(&hub, &id, &job, &caller.name, clock::now()).await?;
    one(State(hub), Path(id)).await
}

/// Deletes a job.
///
/// # Errors
/// Fails if there is no such job, or the database fails.
pub async fn remove(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode> {
    hub.database.delete_query_job(&id, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a job run now.
///
/// # Errors
/// Fails if there is no such job, or the database fails.
pub async fn run(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode> {
    manage::run_now(&hub, &id, &caller.name).await?;
    Ok(StatusCode::ACCEPTED)
}

/// The parameters of a list of runs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunParameters {
    /// The most runs.
    limit: Option<i64>,
}

/// Lists the runs of a job, the newest first.
///
/// # Errors
/// Fails if there is no such job, the limit is out of range, or the database fails.
pub async fn runs(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<RunParameters>,
) -> Result<Json<Vec<RunView>>> {
    let limit = parameters.limit.unwrap_or(RUNS);
    if !(1..=crate::database::query_jobs::KNOWN_RUNS).contains(&limit) {
        return Err(Error::Invalid("limit is a number from 1 to 1000".to_owned()));
    }
    let job = hub.database.query_job(&id).await?;
    let runs = hub.database.query_job_runs(&job.id, limit).await?;
    Ok(Json(runs.into_iter().map(RunView::from).collect()))
}

/// Returns a run with its result.
///
/// # Errors
/// Fails if there is no such run, or the database fails.
pub async fn run_result(
    State(hub): State<Arc<Hub>>,
    Path((id, run)): Path<(String, String)>,
) -> Result<Json<RunResultView>> {
    let (run, result) = hub.database.query_job_run(&id, &run).await?;
    Ok(Json(RunResultView {
        run: run.into(),
        result: result.and_then(|text| serde_json::from_str(&text).ok()),
    }))
}
