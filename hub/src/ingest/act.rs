//! Actions of people on groups.

use super::outbox::{Outbox, Trigger};
use super::states;
use crate::clock;
use crate::database::{Database, audit, groups, leases, transact};
use crate::error::{Error, Result};
use crate::lifecycle::state::on_action;
use crate::lifecycle::{Action, Status};

/// Returns the name of an action in the audit log.
const fn name(action: &Action) -> &'static str {
    match action {
        Action::Resolve { .. } => "resolve",
        Action::Archive { .. } => "archive",
        Action::Reopen => "reopen",
    }
}

/// Applies an action of a person to a group, with its event and an entry in the audit log. Returns
/// the new status.
///
/// # Errors
/// Fails if there is no such group, if the action is invalid, or the database fails.
pub async fn act(
    database: &Database,
    outbox: &Outbox,
    group: &str,
    action: &Action,
    actor: &str,
) -> Result<Status> {
    // An old address of a group leads to the group that has its keys now.
    let id = database.group(group).await?.id;
    transact!(database, connection => {
        leases::lock_counts(connection).await?;
        let group = groups::find(connection, &id).await?;
        let group = group.ok_or_else(|| Error::Absent(format!("group {id}")))?;
        let status = states::status_of(&group)?;
        let now = clock::now();
        let builds = states::order_of_builds(connection, &group.service).await?;
        let reports = group.reports.unsigned_abs();
        let transition = on_action(&id, &status, action, now.unsigned_abs(), reports, &builds)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        states::store(connection, outbox, &group, &transition, Trigger::Person(actor), now).await?;
        groups::set_undetermined(connection, &id, None).await?;
        audit::add(connection, actor, name(action), &id).await?;
        Ok(transition.status.unwrap_or(status))
    })
}
