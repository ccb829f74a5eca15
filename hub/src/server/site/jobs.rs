//! The pages of jobs, and what a person changes there.

use super::frame::{KeyForm, check_form, frame, see};
use super::job_form::{JobFields, empty, filled};
use crate::access::Scope;
use crate::clock;
use crate::database::query_jobs::RunRow as Run;
use crate::error::Result;
use crate::hub::Hub;
use crate::query_jobs::definition::{JobDefinition, JobQuery};
use crate::query_jobs::execute::JobResult;
use crate::query_jobs::manage::{self, Job};
use crate::server::caller::Caller;
use crate::server::pages::job_chart::{ValuePoint, short};
use crate::server::pages::jobs::{self, JobPage, JobRow, JobStateView, JobsPage, NewJobPage, RunRow};
use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::response::Redirect;
use maud::Markup;
use serde_json::Value;
use std::sync::Arc;

/// The runs of a line in the list.
const SPARK: i64 = 48;
/// The runs of a chart.
const CHART: i64 = 500;

/// Returns the list.
///
/// # Errors
/// Fails if the database fails.
pub async fn list(State(hub): State<Arc<Hub>>, Extension(caller): Extension<Caller>) -> Result<Markup> {
    let mut rows = Vec::new();
    for row in hub.database.query_jobs().await? {
        let runs = hub.database.query_job_runs(&row.id, SPARK).await?;
        rows.push(job_row(&Job::from(row), &runs));
    }
    let view = JobsPage {
        frame: frame(&caller, "Jobs"),
        jobs: rows,
        now: clock::now(),
    };
    Ok(jobs::list(&view))
}

/// Returns the form of a new job.
pub async fn new(Extension(caller): Extension<Caller>) -> Markup {
    jobs::new(&NewJobPage {
        frame: frame(&caller, "New job"),
        form: empty(),
    })
}

/// Returns the page of a job.
///
/// # Errors
/// Fails if there is no such job, or the database fails.
pub async fn page(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Markup> {
    let job = Job::from(hub.database.query_job(&id).await?);
    let runs = hub.database.query_job_runs(&job.row.id, CHART).await?;
    let last = hub.database.last_query_job_result(&job.row.id).await?;
    let result_time = last.as_ref().map(|(run, _)| run.ended.unwrap_or(run.started));
    let result: JobResult = last
        .and_then(|(_, text)| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let definition = job.definition.as_ref().ok();
    let threshold = definition.and_then(|definition| definition.threshold.as_ref());
    let view = JobPage {
        frame: frame(&caller, &job.row.name),
        author: (job.row.author.clone(), job.row.created),
        threshold: threshold.map(|one| (one.to_string(), one.value)),
        form: definition.map(filled),
        result_time,
        rows: cells(&result),
        columns: result.columns,
        notes: result.notes,
        job: job_row(&job, &runs),
        runs: runs.into_iter().map(run_row).collect(),
        now: clock::now(),
    };
    Ok(jobs::one(&view))
}

/// Adds a job.
///
/// # Errors
/// Fails if the form is foreign, the definition is impossible, or the database fails.
pub async fn add(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(fields): Form<JobFields>,
) -> Result<Redirect> {
    check_form(&caller, &fields.csrf)?;
    caller.require(Scope::Admin)?;
    let id = manage::add(&hub, &fields.definition()?, &caller.name, clock::now()).await?;
    Ok(see(&format!("/jobs/{id}")))
}

/// Changes a job.
///
/// # Errors
/// Fails if the form is foreign, the definition is impossible, there is no such job, or the
/// database fails.
pub async fn change(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(fields): Form<JobFields>,
) -> Result<Redirect> {
    check_form(&caller, &fields.csrf)?;
    caller.require(Scope::Admin)?;
    let old = JobDefinition::read(&hub.database.query_job(&id).await?.definition)?;
    let new = with_hidden_parts(fields.definition()?, &old);
    manage::change(&hub, &id, &new, &caller.name, clock::now()).await?;
    Ok(see(&format!("/jobs/{id}")))
}

/// Returns a definition with the parameters that the form has no fields for.
fn with_hidden_parts(mut new: JobDefinition, old: &JobDefinition) -> JobDefinition {
    match (&mut new.query, &old.query) {
        (
            JobQuery::Top { selection, .. } | JobQuery::Series { selection, .. },
            JobQuery::Top { selection: old, .. } | JobQuery::Series { selection: old, .. },
        ) => {
            selection.until.clone_from(&old.until);
            selection.region.clone_from(&old.region);
            selection.language.clone_from(&old.language);
            selection.thread.clone_from(&old.thread);
            selection.ignore.clone_from(&old.ignore);
            selection.hide.clone_from(&old.hide);
            selection.show_from.clone_from(&old.show_from);
            selection.idle.clone_from(&old.idle);
        }
        (JobQuery::Regression { compare }, JobQuery::Regression { compare: old }) => {
            compare.until.clone_from(&old.until);
            compare.before_from.clone_from(&old.before_from);
            compare.before_until.clone_from(&old.before_until);
            compare.intervals.clone_from(&old.intervals);
        }
        _ => {}
    }
    new
}

/// Lets a job run now.
///
/// # Errors
/// Fails if the form is foreign, there is no such job, or the database fails.
pub async fn run(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<KeyForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    manage::run_now(&hub, &id, &caller.name).await?;
    Ok(see(&format!("/jobs/{id}")))
}

/// Deletes a job.
///
/// # Errors
/// Fails if the form is foreign, there is no such job, or the database fails.
pub async fn delete(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<KeyForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    hub.database.delete_query_job(&id, &caller.name).await?;
    Ok(see("/jobs"))
}

fn job_row(job: &Job, runs: &[Run]) -> JobRow {
    let Job { row, definition } = job;
    let definition = definition.as_ref().ok();
    let threshold = definition.and_then(|one| one.threshold.as_ref());
    let watched = match (threshold, definition.map(|one| &one.query)) {
        (Some(threshold), _) => threshold.column.clone(),
        (None, Some(JobQuery::Regression { .. })) => "slower functions".to_owned(),
        _ => "first number".to_owned(),
    };
    let number = |run: &Run| run.value.as_deref().and_then(|value| value.parse().ok());
    let ended = runs.iter().filter(|run| run.ended.is_some());
    let mut values: Vec<ValuePoint> = ended
        .map(|run| ValuePoint {
            time: run.started,
            value: number(run),
        })
        .collect();
    values.reverse();
    JobRow {
        id: row.id.clone(),
        name: row.name.clone(),
        kind: definition.map_or("unknown", |one| one.query.kind()).to_owned(),
        schedule: definition.map_or(String::new(), |one| one.schedule.to_string()),
        watched,
        state: JobStateView {
            is_running: row.run.is_some() || row.is_wanted,
            is_enabled: row.is_enabled,
            alerting: row.alerting,
            failing: row.failing,
            problem: runs.iter().find_map(|run| run.problem.clone()),
            last_run: runs.first().map(|run| run.started),
        },
        values,
        next_run: row.is_enabled.then_some(row.next_run),
    }
}

fn run_row(run: Run) -> RunRow {
    RunRow {
        started: run.started,
        length: run.ended.map(|ended| ended.saturating_sub(run.started)),
        state: run.state,
        origin: run.origin,
        value: run.value.and_then(|value| value.parse().ok()),
        row_count: run.row_count.unsigned_abs(),
        problem: run.problem,
    }
}

/// Returns the cells of a result as texts.
fn cells(result: &JobResult) -> Vec<Vec<String>> {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        // The API has all digits.
        Some(Value::Number(number)) if number.is_f64() => short(number.as_f64().unwrap_or(f64::NAN)),
        Some(other) => other.to_string(),
    };
    let row = |row| {
        let columns = result.columns.iter();
        columns
            .map(|column| text(serde_json::Map::get(row, column)))
            .collect()
    };
    result.rows.iter().map(row).collect()
}
