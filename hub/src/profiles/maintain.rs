//! Compaction, retention and garbage collection of the profile store, by one hub at a time.

use crate::clock;
use crate::error::Result;
use crate::hub::Hub;
use backtrail_profile::UnixNanos;
use backtrail_store::{Cancel, CompactionOptions, Error, Hour, Store, first_kept};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time between two compactions.
const COMPACTION: Duration = Duration::from_secs(30);
/// The lease of a compaction. Another hub does the next one after it.
const COMPACTION_LEASE: i64 = 25 * clock::SECOND;
/// The lease of retention and garbage collection.
const RETENTION_LEASE: i64 = clock::HOUR;
/// The hours that one round compacts.
const HOURS: i64 = 24;
/// The time after which files without a row are deleted. No query lasts as long.
const GRACE: Duration = Duration::from_secs(2 * 3600);

fn now() -> UnixNanos {
    UnixNanos(clock::now().unsigned_abs().saturating_mul(1000))
}

/// Compacts the hours that have many segments, the newest first. Returns the number of replaced
/// segments.
///
/// # Errors
/// Fails if the store fails.
pub async fn compact(hub: &Hub, cancel: &Cancel) -> Result<usize> {
    let options = CompactionOptions::default();
    let mut replaced = 0;
    for hour in hub.database.crowded_hours(options.min_segments, HOURS).await? {
        let begin = Instant::now();
        let done = hub.profiles.compact(Hour(hour), options, cancel).await;
        hub.compactions.add(&done, begin.elapsed());
        match done {
            Ok(Some(done)) => replaced += done.removed.len(),
            Ok(None) => {}
            // Another hub was faster.
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(replaced)
}

/// Removes samples that are too old, and files that no segment names. Returns the number of removed
/// segments and of deleted files.
///
/// # Errors
/// Fails if the store fails.
pub async fn expire(hub: &Hub) -> Result<(usize, u64)> {
    let first = first_kept(now(), hub.config.profiles.days);
    let removed = hub.profiles.remove_before(first).await?;
    let garbage = hub
        .profiles
        .collect_garbage(now(), GRACE.max(Store::MIN_GRACE))
        .await?;
    Ok((removed, garbage.files))
}

/// Does both until `end` is true.
pub async fn run(hub: Arc<Hub>, mut end: watch::Receiver<bool>) {
    let cancel = Cancel::default();
    while !*end.borrow() {
        tokio::select! {
            () = tokio::time::sleep(COMPACTION) => {}
            _ = end.changed() => return,
        }
        let round = async {
            if hub
                .database
                .take_lease("profile-compaction", COMPACTION_LEASE)
                .await?
            {
                let replaced = compact(&hub, &cancel).await?;
                if replaced > 0 {
                    tracing::debug!("compacted {replaced} segments of profiles");
                }
            }
            if hub
                .database
                .take_lease("profile-retention", RETENTION_LEASE)
                .await?
            {
                let (segments, files) = expire(&hub).await?;
                tracing::info!("removed {segments} segments of profiles and {files} unused files");
            }
            Result::Ok(())
        };
        let done = tokio::select! {
            done = round => done,
            _ = end.changed() => {
                cancel.cancel();
                return;
            }
        };
        if let Err(error) = done {
            tracing::error!("cannot compact or remove profiles: {error}");
        }
    }
}
