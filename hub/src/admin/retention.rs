//! Retention: removes reports by age, and bundles by the size of all blobs.

use crate::clock::{DAY, HOUR};
use crate::config::Retention;
use crate::database::Database;
use crate::error::Result;
use crate::ingest::entry::{Entry, from_lines, to_lines};
use crate::ingest::journal;
use crate::ingest::stored_crash;
use crate::objects::Objects;

/// The keys whose reports are removed between two queries.
const BATCH: i64 = 100;

/// The numbers of removed rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Reports, with their bundles.
    pub reports: u64,
    /// Bundles of reports that stay.
    pub bundles: u64,
}

/// Removes what is too old or too large at a time. The blobs become garbage.
///
/// # Errors
/// Fails if the database or the object store fails. The rest is done by the next call.
pub async fn run(database: &Database, store: &Objects, retention: &Retention, now: i64) -> Result<Removed> {
    let mut removed = Removed::default();
    // Counts per hour end where the reports end.
    let before = (now - i64::from(retention.days) * DAY).div_euclid(HOUR) * HOUR;
    loop {
        let keys = database.expired_keys(before, BATCH).await?;
        if keys.is_empty() {
            break;
        }
        for key in keys {
            removed.reports += database.expire_key(&key, before).await?;
        }
    }
    database.expire_rest(before).await?;
    shorten_journal(database, store, before).await?;
    let limit = i64::try_from(retention.gib << 30).unwrap_or(i64::MAX);
    let total = database.blob_bytes().await?;
    while total - database.unused_bytes().await? > limit {
        let reports = database.remove_oldest_bundles().await?;
        if reports.is_empty() {
            break;
        }
        removed.bundles += reports.len() as u64;
        for report in reports {
            stored_crash::note_removal(store, &report).await?;
        }
    }
    Ok(removed)
}

/// Removes reports without a row from segments of the journal before a time. First runs of builds
/// stay, because they order builds.
async fn shorten_journal(database: &Database, store: &Objects, before: i64) -> Result<()> {
    loop {
        // A report can be received long after its crash, but not before.
        let names = database.long_segments(before.div_euclid(DAY), BATCH).await?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            shorten(database, store, &name).await?;
            database.set_shortened(&name).await?;
        }
    }
}

async fn shorten(database: &Database, store: &Objects, name: &str) -> Result<()> {
    let key = journal::key(name);
    let Some(lines) = store.get(&key).await? else {
        return Ok(());
    };
    let (entries, _) = from_lines(&lines);
    let (mut kept, mut removed) = (Vec::new(), 0);
    for entry in entries {
        match entry {
            Entry::Report { received, report } => {
                if database.has_report(report.id.as_str()).await? {
                    kept.push(Entry::Report { received, report });
                    continue;
                }
                removed += 1;
                let time = i64::try_from(report.time).unwrap_or(received);
                let (service, build) = (report.service, report.build);
                // Rows of builds outlive their reports.
                if database.first_crash(&service, &build).await? == Some(time) {
                    kept.push(Entry::FirstCrash { service, build, time });
                }
            }
            other => kept.push(other),
        }
    }
    if kept.is_empty() {
        return store.delete(&key).await;
    }
    if removed > 0 {
        store.put(&key, to_lines(&kept)).await?;
    }
    Ok(())
}
