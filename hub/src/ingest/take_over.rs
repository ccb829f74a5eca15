//! Decisions on a group whose keys another group takes over, by rules or by a new version.
//!
//! No alert comes of this. A group that was announced stays announced under its new identifier.

use crate::clock;
use crate::database::changes::{self, NewChange};
use crate::database::groups::{self, GroupRow};
use crate::database::jobs::{self, JobKind};
use crate::error::Result;
use crate::lifecycle::state::{ReportFacts, on_report};
use crate::lifecycle::{Builds, EventKind};
use sqlx::AnyConnection;

/// The time after which a group is announced that was not announced yet.
const ANNOUNCE_AFTER: i64 = 60 * clock::SECOND;

/// Returns the rank of a state. Of two groups that become one, the higher one counts: an open
/// defect is not hidden by a solved one.
fn rank(state: &str) -> u8 {
    match state {
        "escalating" => 5,
        "regressed" => 4,
        "ongoing" => 3,
        "new" => 2,
        "archived" => 1,
        _ => 0,
    }
}

/// Gives a group the decisions on the group `from`, from which it takes over a key.
///
/// # Errors
/// Fails if the database fails.
pub async fn share(
    connection: &mut AnyConnection,
    from: &GroupRow,
    to: &str,
    is_new: bool,
    now: i64,
) -> Result<()> {
    let Some(target) = groups::find(connection, to).await? else {
        return Ok(());
    };
    if is_new {
        groups::inherit(connection, from, to).await?;
    } else {
        if rank(&from.state_name) > rank(&target.state_name) {
            groups::set_state(connection, to, &from.state_name, &from.state, from.state_since).await?;
        }
        if target.assignee.is_none() && from.assignee.is_some() {
            let _ = groups::set_assignee(connection, to, from.assignee.as_deref()).await?;
        }
    }
    if changes::has(connection, to, EventKind::New.name()).await? {
        return Ok(());
    }
    let announced = changes::first(connection, &from.id, EventKind::New.name()).await?;
    let Some(announced) = announced else {
        // The crash is new, and only its announcement is left to do.
        let run_at = now + ANNOUNCE_AFTER;
        return jobs::add(connection, JobKind::Announce, to, run_at).await;
    };
    let facts = ReportFacts {
        group: to,
        time: announced.time.unsigned_abs(),
        build: announced.build.as_deref().unwrap_or(&from.first_build),
        reports: from.reports.unsigned_abs(),
        seen_builds: &[],
    };
    if let Some(event) = on_report(None, &facts, &Builds::default()).event {
        let change = NewChange {
            group: to,
            time: announced.time,
            event: event.kind.name(),
            build: announced.build.as_deref(),
            report: announced.report.as_deref(),
            actor: None,
            once: &event.once,
        };
        // An event that is known stays as it is.
        let _ = changes::insert(connection, &change).await?;
    }
    Ok(())
}

/// Gives the history and the comments of a group to its successor, if no key is left.
///
/// # Errors
/// Fails if the database fails.
pub async fn finish(connection: &mut AnyConnection, from: &str, to: &str) -> Result<()> {
    groups::delete_empty(connection, from).await?;
    if groups::find(connection, from).await?.is_none() {
        changes::move_to(connection, from, to).await?;
    }
    Ok(())
}
