//! Decides whether the bundle of a report is wanted, and which stored one a new one replaces.

use crate::database::reports::{self, BundleState, ReportRow, SampleRow};
use crate::error::Result;
use crate::lifecycle::sampling::{self, SampleFacts, StoredSample};
use backtrail_report::{CrashReport, ReportId, WantReason};
use sqlx::AnyConnection;

/// Returns the name of a reason, as JSON and the database have it.
#[must_use]
pub fn reason_name(reason: WantReason) -> Option<String> {
    let value = serde_json::to_value(reason).ok()?;
    value.as_str().map(str::to_owned)
}

/// Returns the reason of a name. Bundles without a known reason were pushed by a person.
#[must_use]
pub fn reason_named(name: Option<&str>) -> WantReason {
    name.and_then(|name| serde_json::from_value(name.into()).ok())
        .unwrap_or(WantReason::Pushed)
}

fn sample(row: &SampleRow) -> Option<StoredSample> {
    let report: ReportId = row.report.parse().ok()?;
    Some(StoredSample {
        report,
        build: row.build.clone(),
        time: row.time.unsigned_abs(),
        reason: reason_named(row.reason.as_deref()),
        is_pinned: row.is_pinned,
        expected_until: match row.bundle {
            BundleState::Stored => None,
            BundleState::Wanted => Some(row.until.unwrap_or_default().unsigned_abs()),
            _ => Some(u64::MAX),
        },
    })
}

/// Returns the reason for which the hub wants the bundle of a report that it just counted.
///
/// # Errors
/// Fails if the database fails.
pub async fn choose(
    connection: &mut AnyConnection,
    group: &str,
    report: &CrashReport,
    (is_known, reports, now): (bool, i64, i64),
) -> Result<Option<WantReason>> {
    let own = (report.id.as_str(), report.build.as_str());
    let rows = reports::deciding_samples(connection, group, own, sampling::FIRST, now).await?;
    let samples: Vec<_> = rows.iter().filter_map(sample).collect();
    let facts = SampleFacts {
        report: &report.id,
        build: &report.build,
        has_stack: !report.frames.is_empty(),
        is_known,
        reports: reports.unsigned_abs(),
        now: now.unsigned_abs(),
    };
    Ok(sampling::wants(&facts, &samples))
}

/// Removes the bundle of a group that a newly stored one replaces. Returns its report.
///
/// # Errors
/// Fails if the database fails.
pub async fn replace(
    connection: &mut AnyConnection,
    group: &str,
    stored: &ReportRow,
    now: i64,
) -> Result<Option<String>> {
    let reason = reason_named(stored.bundle_reason.as_deref());
    if !matches!(reason, WantReason::Sampled | WantReason::NewBuild) {
        return Ok(None);
    }
    let rows = reports::samples(connection, group, now).await?;
    let samples: Vec<_> = rows.iter().filter_map(sample).collect();
    let new = samples.iter().find(|sample| sample.report.as_str() == stored.id);
    let dropped = new.and_then(|new| sampling::to_drop(new, &samples));
    let Some(dropped) = dropped else {
        return Ok(None);
    };
    reports::set_removed(connection, dropped.as_str()).await?;
    Ok(Some(dropped.to_string()))
}
