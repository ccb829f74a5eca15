//! Changes of states with time: every minute, by one hub.

use super::outbox::{Outbox, Trigger};
use super::{states, versions};
use crate::clock::{self, HOUR};
use crate::database::groups::{self, GroupRow};
use crate::database::{Database, leases, shares, transact};
use crate::error::Result;
use crate::lifecycle::escalation::{LEAST_HOSTS, MAX_HOURS, escalation};
use crate::lifecycle::state::{TickFacts, on_tick};
use crate::lifecycle::{Builds, HostShare, State};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::watch;

/// The time between two ticks.
const INTERVAL: Duration = Duration::from_secs(60);
/// The lease of a tick: shorter than the interval, so that one hub does the next one.
const LEASE: i64 = 55 * clock::SECOND;
/// The age of crashes from which a group is at rest.
const RECENT: i64 = 3 * HOUR;

/// Evaluates all groups whose state depends on time. Returns the number of changed states.
///
/// # Errors
/// Fails if the database fails.
pub async fn tick(database: &Database, outbox: &Outbox, now: i64) -> Result<usize> {
    if versions::switch_if_due(database, now).await? {
        tracing::info!("another version of the grouping replaces the one before");
    }
    // Keys that a version without this list analyzed.
    while database.list_functions_of_old_keys().await? > 0 {}
    let mut hosts: HashMap<String, Vec<(i64, i64)>> = HashMap::new();
    let mut changed = 0;
    for group in database.groups_in_motion(now, now - RECENT).await? {
        if !hosts.contains_key(&group.service) {
            let hours = database.host_hours(&group.service).await?;
            hosts.insert(group.service.clone(), hours);
        }
        let running = hosts.get(&group.service).map_or(&[][..], Vec::as_slice);
        if tick_group(database, outbox, &group, running, now).await? {
            changed += 1;
        }
    }
    Ok(changed)
}

async fn tick_group(
    database: &Database,
    outbox: &Outbox,
    group: &GroupRow,
    running: &[(i64, i64)],
    now: i64,
) -> Result<bool> {
    let id = &group.id;
    transact!(database, connection => {
        leases::lock_counts(connection).await?;
        let Some(group) = groups::find(connection, id).await? else {
            return Ok(false);
        };
        let status = states::status_of(&group)?;
        let hour = now.div_euclid(HOUR);
        let is_recent = group.last_seen >= hour * HOUR;
        let may_escalate = !matches!(status.state, State::Resolved(_));
        let mut is_escalating = false;
        if is_recent && may_escalate && group.hosts.unsigned_abs() >= LEAST_HOSTS {
            let mut crashed = shares::crashed_hosts(connection, id, hour).await?;
            // Earlier hours are counted only if this one can escalate.
            if crashed.get(&hour).is_some_and(|hosts| *hosts >= LEAST_HOSTS) {
                let first = hour - MAX_HOURS as i64;
                crashed = shares::crashed_hosts(connection, id, first).await?;
                let (current, earlier) = host_shares(&crashed, running, hour);
                is_escalating = escalation(current, &earlier).is_escalating;
            }
        }
        let build = shares::main_build(connection, id, hour).await?;
        let facts = TickFacts {
            group: id,
            now: now.unsigned_abs(),
            reports: group.reports.unsigned_abs(),
            is_escalating,
            build: build.as_deref(),
        };
        let builds = match status.state {
            State::Resolved(_) => states::order_of_builds(connection, &group.service).await?,
            _ => Builds::default(),
        };
        let transition = on_tick(&status, &facts, &builds);
        states::store(connection, outbox, &group, &transition, Trigger::Time, now).await?;
        Ok(transition.status.is_some())
    })
}

/// Returns the share of hosts in the current hour, and in the hours before it, oldest first.
fn host_shares(
    crashed: &HashMap<i64, u64>,
    running: &[(i64, i64)],
    hour: i64,
) -> (HostShare, Vec<HostShare>) {
    let share = |hour: i64| {
        let reporting = running
            .iter()
            .filter(|(first, last)| *first <= hour && hour <= *last)
            .count() as u64;
        HostShare {
            crashed: crashed.get(&hour).copied().unwrap_or_default(),
            reporting,
        }
    };
    let current = share(hour);
    let earlier = (hour - MAX_HOURS as i64..hour).map(share).collect();
    // Early in an hour, hosts of the hour before have not sent their heartbeat yet.
    let before = share(hour - 1);
    let reporting = current.reporting.max(before.reporting);
    (HostShare { reporting, ..current }, earlier)
}

/// Evaluates groups every minute until `end` is true, unless another hub does.
pub async fn run(database: Database, outbox: Outbox, mut end: watch::Receiver<bool>) {
    while !*end.borrow() {
        let done = match database.take_lease("tick", LEASE).await {
            Ok(true) => tick(&database, &outbox, clock::now()).await.map(|_| ()),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::error!("cannot evaluate states of groups: {error}");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = end.changed() => {}
        }
    }
}
