//! Runs each due job on one hub.
//!
//! A transaction claims a job for a hub. The hub renews the claim while the query runs. The end of
//! the run and its alerts are one transaction too, which only the hub with the claim commits. A
//! claim that expires is the end of a run that failed.

use super::alerts::{self, RunReport};
use super::definition::JobDefinition;
use super::execute::{self, JobOutput, RunTimes, later};
use super::outcome::{JobState, RunFacts, decide};
use crate::clock;
use crate::database::query_jobs::{self, JobRow, RunEnd};
use crate::database::transact;
use crate::error::{Error, Result};
use crate::hub::Hub;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time between two searches for due jobs.
const INTERVAL: Duration = Duration::from_secs(5);
/// The time after which a run has lost its hub.
pub const LEASE: i64 = 60 * clock::SECOND;
/// The time between two renewals.
const RENEWAL: Duration = Duration::from_secs(15);
/// The longest run.
const LONGEST: Duration = Duration::from_secs(900);
/// The longest reason of a failure in characters.
const MAX_PROBLEM: usize = 1000;

/// A run that this hub has.
struct Claim {
    job: String,
    run: String,
    definition: JobDefinition,
    /// The time that the run is for: when it was due, or when a person wanted it.
    due: i64,
}

/// Runs the jobs that are due at a time, one after the other. Returns their number.
///
/// # Errors
/// Fails if the database fails. A query that fails is the result of its run.
pub async fn run_due(hub: &Arc<Hub>, now: i64) -> Result<usize> {
    end_abandoned(hub, now).await?;
    let mut count = 0;
    while let Some(claim) = claim(hub, now).await? {
        execute_claimed(hub, &claim, now).await?;
        count += 1;
    }
    Ok(count)
}

/// Runs due jobs until `end` is true. A run that is not finished then fails.
pub async fn run(hub: Arc<Hub>, mut end: watch::Receiver<bool>) {
    while !*end.borrow() {
        let done = tokio::select! {
            done = run_due(&hub, clock::now()) => done,
            _ = end.changed() => return,
        };
        if let Err(error) = done {
            tracing::error!("cannot run jobs: {error}");
        }
        tokio::select! {
            () = hub.wake_jobs.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
            _ = end.changed() => {}
        }
    }
}

/// Ends the runs whose hub has ended.
async fn end_abandoned(hub: &Hub, now: i64) -> Result<()> {
    for row in hub.database.abandoned_query_jobs(now).await? {
        let (Some(run), Ok(definition)) = (row.run, JobDefinition::read(&row.definition)) else {
            continue;
        };
        let claim = Claim {
            job: row.id,
            run,
            definition,
            due: now,
        };
        let failed = Err(Error::Conflict("the hub that ran the query has ended".to_owned()));
        conclude(hub, &claim, failed, now).await?;
    }
    Ok(())
}

/// Claims the first due job that this hub can read. `None`: there is none.
async fn claim(hub: &Hub, now: i64) -> Result<Option<Claim>> {
    for row in hub.database.due_query_jobs(now).await? {
        let definition = match JobDefinition::read(&row.definition) {
            Ok(definition) => definition,
            Err(error) => {
                tracing::warn!("job {} is left to a newer hub: {error}", row.id);
                continue;
            }
        };
        if let Some(run) = claim_row(hub, &row, &definition, now).await? {
            return Ok(Some(Claim {
                due: due_time(&row, &definition, now),
                job: row.id,
                run,
                definition,
            }));
        }
    }
    Ok(None)
}

/// Returns the time that a run is for. A hub that was busy runs a job after its due time.
fn due_time(row: &JobRow, job: &JobDefinition, now: i64) -> i64 {
    match row.is_enabled && row.next_run <= now {
        true => job.schedule.latest(now),
        false => now,
    }
}

async fn claim_row(hub: &Hub, row: &JobRow, job: &JobDefinition, now: i64) -> Result<Option<String>> {
    // A run that a person wants does not move the schedule.
    let next = match row.next_run <= now {
        true => job.schedule.next(now),
        false => row.next_run,
    };
    hub.database.claim_query_job(row, next, now, now + LEASE).await
}

/// Answers the query of a claimed run, and stores the result.
async fn execute_claimed(hub: &Arc<Hub>, claim: &Claim, now: i64) -> Result<()> {
    let begun = Instant::now();
    let times = RunTimes { now, due: claim.due };
    let query = tokio::time::timeout(LONGEST, execute::execute(hub, &claim.definition.query, times));
    let output = tokio::select! {
        output = query => output.unwrap_or_else(|_| {
            Err(Error::TooLarge("the query took longer than 15 minutes".to_owned()))
        }),
        () = renew(hub, claim, now, begun) => {
            tracing::warn!("job {}: another hub ended run {}", claim.job, claim.run);
            return Ok(());
        }
    };
    let output = output.and_then(|output| {
        output.check_threshold(&claim.definition)?;
        Ok(output)
    });
    conclude(hub, claim, output, later(now, begun.elapsed())).await
}

/// Renews a claim until another hub has ended the run.
async fn renew(hub: &Hub, claim: &Claim, now: i64, begun: Instant) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        let until = later(now, begun.elapsed()) + LEASE;
        match hub.database.renew_query_job(&claim.job, &claim.run, until).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => tracing::warn!("cannot renew the claim of job {}: {error}", claim.job),
        }
    }
}

/// Stores the end of a run with its alerts, unless another hub did.
async fn conclude(hub: &Hub, claim: &Claim, output: Result<JobOutput>, now: i64) -> Result<()> {
    let output = output.map_err(|error| problem(&error));
    if let Err(problem) = &output {
        tracing::warn!("job {} failed: {problem}", claim.job);
    }
    let definition = &claim.definition;
    let value = output.as_ref().ok().and_then(|output| output.watched(definition));
    let value_text = value.map(|value| value.to_string());
    let result = match &output {
        Ok(output) => serde_json::to_string(&output.result).ok(),
        Err(_) => None,
    };
    let facts = match &output {
        Ok(_) => RunFacts::Done {
            value,
            threshold: definition.threshold.as_ref(),
        },
        Err(_) => RunFacts::Failed,
    };
    let report = RunReport {
        job: &claim.job,
        definition,
        value,
        problem: output.as_ref().err().map(String::as_str),
        time: now,
    };
    let outbox = hub.recorder.outbox();
    transact!(hub.database, connection => {
        let Some(row) = query_jobs::running(connection, &claim.job, &claim.run).await? else {
            return Ok(());
        };
        let state = JobState { alerting: row.alerting, failing: row.failing };
        let (state, events) = decide(state, &facts, now);
        for event in events {
            alerts::post(connection, outbox, event, &report).await?;
        }
        if let Ok(JobOutput { findings: Some(findings), .. }) = &output {
            alerts::post_findings(connection, outbox, findings, &report).await?;
        }
        let end = RunEnd {
            job: &claim.job,
            run: &claim.run,
            time: now,
            value: value_text.as_deref(),
            row_count: output.as_ref().map_or(0, |output| i64::try_from(output.row_count).unwrap_or(i64::MAX)),
            result: result.as_deref(),
            problem: report.problem,
            alerting: state.alerting,
            failing: state.failing,
        };
        query_jobs::end(connection, &end).await
    })
}

/// Returns the reason of a failure as one line that every database takes.
fn problem(error: &Error) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    error.to_string().chars().take(MAX_PROBLEM).map(shown).collect()
}
