//! Retention and garbage collection in a running hub: every hour, by one hub.

use super::{gc, index_garbage, retention};
use crate::clock;
use crate::error::Result;
use crate::hub::Hub;
use crate::ingest::journal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time between two looks whether the work is due.
const INTERVAL: Duration = Duration::from_secs(600);
/// The lease of the work: another hub does it no sooner.
const LEASE: i64 = clock::HOUR;
/// The lease of a check of the journal: shorter than the interval, so that one hub does the next.
const REPLAY: i64 = 500 * clock::SECOND;

/// Removes what is too old and what no row names, once.
///
/// # Errors
/// Fails if the database or the object store fails.
pub async fn once(hub: &Hub) -> Result<(retention::Removed, gc::Collected)> {
    let now = clock::now();
    let removed = retention::run(&hub.database, &hub.objects, &hub.config.retention, now).await?;
    let mut collected = gc::run(&hub.database, &hub.objects, &hub.config.data, now).await?;
    // Samples that are kept need the names of their builds.
    let days = hub.config.symbols.index_days.max(hub.config.profiles.days);
    let age = i64::from(days) * clock::DAY;
    collected.indexes = index_garbage::run(&hub.database, &hub.objects, age, now).await?;
    Ok((removed, collected))
}

/// Applies segments of the journal that another hub left when it ended. One hub does it.
async fn apply_rest(hub: &Hub) -> Result<()> {
    if hub.database.take_lease("journal", REPLAY).await? {
        let segments = journal::replay_recent(&hub.database, &hub.objects, &hub.recorder).await?;
        if segments > 0 {
            tracing::info!("applied {segments} segments that another hub left");
        }
    }
    Ok(())
}

/// Does so every hour until `end` is true, unless another hub does.
pub async fn run(hub: Arc<Hub>, mut end: watch::Receiver<bool>) {
    while !*end.borrow() {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = end.changed() => return,
        }
        if let Err(error) = apply_rest(&hub).await {
            tracing::error!("cannot apply the journal of other hubs: {error}");
        }
        let done = match hub.database.take_lease("maintenance", LEASE).await {
            Ok(true) => once(&hub).await.map(|(removed, collected)| {
                tracing::info!(
                    "removed {} reports, {} bundles, {} unused blobs and {} unused indexes",
                    removed.reports,
                    removed.bundles,
                    collected.blobs,
                    collected.indexes
                );
            }),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::error!("cannot remove old data: {error}");
        }
    }
}
