//! Stores the decisions of `lifecycle`: states of groups on reports, regroupings and with time.

use super::outbox::{Outbox, Trigger};
use crate::database::builds;
use crate::database::changes;
use crate::database::groups::{self, GroupRow};
use crate::database::reports::{self, ReportRow};
use crate::error::{Error, Result};
use crate::lifecycle::state::{ReportFacts, on_report};
use crate::lifecycle::{ArchiveCondition, Builds, EventKind, State, Status, Transition};
use sqlx::AnyConnection;

/// Returns the status of a group.
///
/// # Errors
/// Fails if the stored state is damaged or of a newer hub.
pub fn status_of(group: &GroupRow) -> Result<Status> {
    let state = State::from_parts(&group.state_name, Some(&group.state))
        .map_err(|error| Error::Conflict(format!("group {}: {error}", group.id)))?;
    Ok(Status {
        state,
        since: group.state_since.unsigned_abs(),
    })
}

/// Returns the order of a service's builds.
///
/// # Errors
/// Fails if the database fails.
pub async fn order_of_builds(connection: &mut AnyConnection, service: &str) -> Result<Builds> {
    let runs = builds::first_runs(connection, service).await?;
    let runs = runs
        .into_iter()
        .map(|(build, first_ran)| (build, first_ran.map(i64::unsigned_abs)));
    Ok(Builds::new(runs))
}

/// Stores a transition: the state, the event with its alerts, and the undetermined order.
///
/// # Errors
/// Fails if the database fails.
pub async fn store(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    group: &GroupRow,
    transition: &Transition,
    trigger: Trigger<'_>,
    now: i64,
) -> Result<()> {
    if let Some(status) = &transition.status {
        let detail = status.state.detail().unwrap_or_default();
        let since = i64::try_from(status.since).unwrap_or(now);
        groups::set_state(connection, &group.id, status.state.name(), &detail, since).await?;
    }
    if let Some(event) = &transition.event {
        outbox.post(connection, event, group, trigger, now).await?;
    }
    Ok(())
}

/// Applies a counted report to the state of its group. Address-only groups announce nothing before
/// their bundle is analyzed, or [`announce`] ran.
///
/// # Errors
/// Fails if the database fails.
pub async fn apply_report(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    group: &GroupRow,
    report: &ReportRow,
    is_new_build: bool,
) -> Result<()> {
    let status = match status_of(group) {
        Ok(status) => status,
        Err(error) => {
            // A newer hub may have written it. The report counts even so.
            tracing::warn!("{error}");
            return Ok(());
        }
    };
    let depends_on_builds = is_new_build || matches!(status.state, State::Resolved(_));
    let may_end = matches!(
        status.state,
        State::Archived(ArchiveCondition::UntilReports { total }) if group.reports.unsigned_abs() >= total
    );
    if !depends_on_builds && !may_end {
        return Ok(());
    }
    let is_quiet = group.is_provisional && status.state.is_open();
    if is_quiet && !changes::has(connection, &group.id, EventKind::New.name()).await? {
        return Ok(());
    }
    let mut seen = Vec::new();
    if is_new_build && status.state.is_open() {
        seen = groups::builds(connection, &group.id).await?;
        seen.retain(|build| *build != report.build);
    }
    apply_build(connection, outbox, group, &status, report, &seen, report.received).await
}

/// Applies a report of a build to a group, whose earlier reports are of the builds `seen`.
async fn apply_build(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    group: &GroupRow,
    status: &Status,
    report: &ReportRow,
    seen: &[String],
    now: i64,
) -> Result<()> {
    let facts = ReportFacts {
        group: &group.id,
        time: now.unsigned_abs(),
        build: &report.build,
        reports: group.reports.unsigned_abs(),
        seen_builds: seen,
    };
    let order = order_of_builds(connection, &group.service).await?;
    let transition = on_report(Some(status), &facts, &order);
    store(
        connection,
        outbox,
        group,
        &transition,
        Trigger::Report(report),
        now,
    )
    .await?;
    if transition.undetermined != group.undetermined {
        groups::set_undetermined(connection, &group.id, transition.undetermined.as_deref()).await?;
    }
    Ok(())
}

/// Announces a new group, if it is not announced yet and no person has decided on it.
///
/// # Errors
/// Fails if the database fails.
pub async fn announce(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    group: &str,
    report: Option<&ReportRow>,
    now: i64,
) -> Result<()> {
    let Some(group) = groups::find(connection, group).await? else {
        return Ok(());
    };
    let is_announced = changes::has(connection, &group.id, EventKind::New.name()).await?;
    if is_announced || !status_of(&group)?.state.is_open() {
        return Ok(());
    }
    let first = match report {
        Some(report) => Some(report.clone()),
        None => reports::of_group(connection, &group.id, None).await?,
    };
    let Some(first) = first else {
        return Ok(());
    };
    let facts = ReportFacts {
        group: &group.id,
        time: now.unsigned_abs(),
        build: &first.build,
        reports: group.reports.unsigned_abs(),
        seen_builds: &[],
    };
    let transition = on_report(None, &facts, &Builds::default());
    if let Some(event) = &transition.event {
        outbox
            .post(connection, event, &group, Trigger::Report(&first), now)
            .await?;
    }
    Ok(())
}

/// The groups before a key moved from one to the other.
#[derive(Clone, Debug)]
pub struct GroupsBefore {
    /// The group that the key left.
    pub old: GroupRow,
    /// The builds of the other group. `None`: the other group is new.
    pub target_builds: Option<Vec<String>>,
}

/// Applies the move of a key, whose reports are of the builds `moved`, to the state of its new
/// group. A new group takes over the decisions on a group that it replaces.
///
/// # Errors
/// Fails if the database fails.
pub async fn apply_move(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    before: &GroupsBefore,
    target: &str,
    moved: &[String],
    report: &ReportRow,
    now: i64,
) -> Result<()> {
    let old = &before.old;
    let is_replaced = groups::find(connection, &old.id).await?.is_none();
    let Some(seen) = &before.target_builds else {
        let was_announced = changes::has(connection, &old.id, EventKind::New.name()).await?;
        if is_replaced {
            groups::inherit(connection, old, target).await?;
            changes::move_to(connection, &old.id, target).await?;
        }
        // A crash that was announced under its addresses is not new again. A key that leaves a
        // group which goes on is a crash that no user has seen by itself.
        if is_replaced && was_announced {
            return Ok(());
        }
        return announce(connection, outbox, target, Some(report), now).await;
    };
    if is_replaced {
        changes::move_comments(connection, &old.id, target).await?;
    }
    let mut seen = seen.clone();
    for build in moved {
        let Some(group) = groups::find(connection, target).await? else {
            return Ok(());
        };
        let status = status_of(&group)?;
        let is_new_build = !seen.contains(build);
        if is_new_build || !status.state.is_open() {
            let found = reports::of_group(connection, target, Some(build)).await?;
            if let Some(found) = found {
                apply_build(connection, outbox, &group, &status, &found, &seen, now).await?;
            }
        }
        if is_new_build {
            seen.push(build.clone());
        }
    }
    Ok(())
}
