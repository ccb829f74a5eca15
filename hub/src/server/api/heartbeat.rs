//! Heartbeats of hosts.

use super::json::Body;
use crate::clock;
use crate::database::builds;
use crate::database::transact;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::ingest::entry::Entry;
use axum::extract::State;
use axum::http::StatusCode;
use backtrail_report::Heartbeat;
use std::sync::Arc;

/// Takes a heartbeat. Its news are written to the journal.
///
/// # Errors
/// Fails if it is malformed, or the hub cannot write.
pub async fn take(State(hub): State<Arc<Hub>>, Body(beat): Body<Heartbeat>) -> Result<StatusCode> {
    beat.check().map_err(|error| Error::Invalid(error.to_string()))?;
    let now = clock::now();
    let database = &hub.database;
    let known = database.known_runs(&beat.host).await?;
    let mut entries = Vec::new();
    if known.is_none() {
        entries.push(Entry::Host {
            time: now,
            host: beat.host.clone(),
            collector: beat.collector.clone(),
        });
    }
    let known = known.unwrap_or_default();
    for run in &beat.running {
        let since = i64::try_from(run.since).unwrap_or(now).min(now);
        let is_known = known
            .iter()
            .any(|(service, build, first)| *service == run.service && *build == run.build && *first <= since);
        if !is_known {
            entries.push(Entry::Run {
                time: now,
                host: beat.host.clone(),
                service: run.service.clone(),
                build: run.build.clone(),
                since,
            });
        }
    }
    let _: Result<()> = transact!(database, connection => {
        builds::note_host(connection, &beat.host, Some(&beat.collector), now).await?;
        for run in &beat.running {
            builds::note_still_runs(connection, &run.service, &run.build, &beat.host, now).await?;
        }
        Ok(())
    });
    if !entries.is_empty() {
        let _ = hub.journal.write(entries).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
