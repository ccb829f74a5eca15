//! Alerts of jobs, put beside the end of a run into the database.

use super::definition::JobDefinition;
use super::execute::{Finding, Findings};
use crate::database::deliveries::{self, NewDelivery};
use crate::database::query_jobs;
use crate::database::tokens::new_id;
use crate::error::Result;
use crate::ingest::outbox::Outbox;
use crate::notify::job_message::{AlertFunction, AlertJob, JobAlert, JobEvent};
use crate::notify::schedule::delivery_id;
use crate::objects::hexadecimal;
use sha2::{Digest, Sha256};
use sqlx::AnyConnection;

/// The most functions that an alert names.
const MAX_FUNCTIONS: usize = 20;
/// The most functions of a comparison that are announced.
const MAX_FINDINGS: usize = 1000;
/// The longest text of a function in an alert in characters.
const MAX_TEXT: usize = 300;

/// The facts of a run that its alerts report.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    /// The identifier of the job.
    pub job: &'a str,
    /// The definition that ran.
    pub definition: &'a JobDefinition,
    /// The watched number.
    pub value: Option<f64>,
    /// The reason of a failure.
    pub problem: Option<&'a str>,
    /// The end of the run.
    pub time: i64,
}

/// Adds the alert of an event for each channel that takes it.
///
/// # Errors
/// Fails if the database fails.
pub async fn post(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    event: JobEvent,
    report: &RunReport<'_>,
) -> Result<()> {
    let mut alert = new(outbox, event, report)?;
    match event {
        JobEvent::Alert | JobEvent::Recovered => {
            let threshold = &report.definition.threshold;
            alert.threshold = threshold.as_ref().map(ToString::to_string);
            alert.value = report.value;
        }
        JobEvent::Failed => alert.problem = report.problem.map(str::to_owned),
        JobEvent::Regression => {}
    }
    send(connection, outbox, &alert, report.time).await
}

/// Adds one alert about the slower functions that no earlier alert of the job and these builds
/// named.
///
/// # Errors
/// Fails if the database fails.
pub async fn post_findings(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    findings: &Findings,
    report: &RunReport<'_>,
) -> Result<()> {
    query_jobs::forget_findings(connection, report.job, report.time).await?;
    let mut found = Vec::new();
    for finding in findings.slower.iter().take(MAX_FINDINGS) {
        let id = finding_id(report.job, findings, finding);
        if query_jobs::note_finding(connection, &id, report.job, report.time).await? {
            found.push(finding);
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let mut alert = new(outbox, JobEvent::Regression, report)?;
    alert.builds = Some([findings.before.clone(), findings.after.clone()]);
    alert.more = found.len().saturating_sub(MAX_FUNCTIONS) as u64;
    let named = found.into_iter().take(MAX_FUNCTIONS);
    alert.functions = named.map(named_function).collect();
    send(connection, outbox, &alert, report.time).await
}

fn named_function(finding: &Finding) -> AlertFunction {
    let shortened = |text: &str| text.chars().take(MAX_TEXT).collect();
    AlertFunction {
        function: shortened(&finding.function),
        file: shortened(&finding.file),
        module: shortened(&finding.module),
        change: finding.change.clone(),
    }
}

fn new(outbox: &Outbox, event: JobEvent, report: &RunReport<'_>) -> Result<JobAlert> {
    let job = AlertJob {
        id: report.job.to_owned(),
        name: report.definition.name.clone(),
        link: format!("{}/jobs/{}", outbox.public_url(), report.job),
    };
    let service = report.definition.query.service().map(str::to_owned);
    let alert = JobAlert::new(new_id()?, event, report.time.unsigned_abs(), job);
    Ok(JobAlert { service, ..alert })
}

async fn send(connection: &mut AnyConnection, outbox: &Outbox, alert: &JobAlert, now: i64) -> Result<()> {
    let payload = serde_json::to_string(alert).unwrap_or_default();
    let channels = outbox.channels().iter();
    for channel in channels.filter(|channel| channel.takes_job(alert.event, alert.service.as_deref())) {
        let delivery = NewDelivery {
            id: &delivery_id(&alert.change, &channel.name),
            change: &alert.change,
            channel: &channel.name,
            is_summary: false,
            payload: &payload,
            created: now,
        };
        deliveries::insert(connection, &delivery).await?;
    }
    Ok(())
}

/// Returns the hash of a job, two builds and a function.
fn finding_id(job: &str, findings: &Findings, finding: &Finding) -> String {
    let Finding {
        function,
        file,
        module,
        ..
    } = finding;
    let mut digest = Sha256::new();
    for field in [job, &findings.before, &findings.after, function, file, module] {
        digest.update((field.len() as u64).to_le_bytes());
        digest.update(field);
    }
    hexadecimal(&digest.finalize())
}
