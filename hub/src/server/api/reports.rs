//! Crash reports.

use super::json::Body;
use crate::clock;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::ingest::entry::Entry;
use crate::ingest::record::Outcome;
use axum::Json;
use axum::extract::State;
use backtrail_report::{BundleRequest, CrashReport, ModuleOffer, Receipt};
use std::sync::Arc;

/// The most reports of a request.
const MAX_REPORTS: usize = 100;
/// The time for which modules stay that a sender leaves out because of an answer.
const PROMISE: i64 = 7 * clock::DAY;
/// How far in the future a host's clock may be, in microseconds.
const CLOCK_AHEAD: i64 = 10 * 60 * clock::SECOND;

/// Takes a list of reports, and returns a receipt for each, in their order.
///
/// # Errors
/// Fails if one of them is malformed: then none is taken. Fails if the hub cannot write.
pub async fn take(
    State(hub): State<Arc<Hub>>,
    Body(reports): Body<Vec<CrashReport>>,
) -> Result<Json<Vec<Receipt>>> {
    if reports.len() > MAX_REPORTS {
        return Err(Error::TooLarge(format!(
            "a request has at most {MAX_REPORTS} reports"
        )));
    }
    for report in &reports {
        report
            .check()
            .map_err(|error| Error::Invalid(error.to_string()))?;
    }
    let received = clock::now();
    let mut offers = Vec::with_capacity(reports.len());
    let mut entries = Vec::with_capacity(reports.len());
    for mut report in reports {
        offers.push(std::mem::take(&mut report.modules));
        // A wrong clock must not put a crash into the future, where no list ends.
        let limit = u64::try_from(received + CLOCK_AHEAD).unwrap_or(u64::MAX);
        report.time = report.time.min(limit);
        let report = Box::new(report);
        entries.push(Entry::Report { received, report });
    }
    let outcomes = hub.journal.write(entries).await?;
    let mut receipts = Vec::with_capacity(outcomes.len());
    for (outcome, offered) in outcomes.into_iter().zip(offers) {
        if let Outcome::Report(recorded) = outcome {
            let wants = match recorded.wants {
                Some(reason) => Some(BundleRequest {
                    reason,
                    modules: missing_modules(&hub, &offered).await?,
                }),
                None => None,
            };
            receipts.push(Receipt {
                link: format!("{}/c/{}", hub.config.public_url(), recorded.id),
                id: recorded.id,
                group: recorded.group,
                wants,
            });
        }
    }
    Ok(Json(receipts))
}

/// Returns the build ids of offered modules that the hub has not got. It keeps the others until the
/// bundle without them has come.
async fn missing_modules(hub: &Hub, offered: &[ModuleOffer]) -> Result<Vec<String>> {
    let build_ids: Vec<_> = offered
        .iter()
        .filter_map(|module| module.build_id.as_deref())
        .collect();
    let until = clock::now() + PROMISE;
    hub.database.missing_executables(&build_ids, until).await
}
