//! Groups as JSON.

use super::json::{Body, Parameters};
use crate::clock;
use crate::database::groups::GroupRow;
use crate::database::listing::{GroupFilter, GroupOrder};
use crate::database::next_groups::ComparedGroup;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::ingest::act::act;
use crate::lifecycle::Action;
use crate::server::caller::Caller;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The most groups of each kind in a comparison of versions.
const COMPARED: i64 = 100;

/// The parameters of a list of groups.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListParameters {
    /// Words that the group's title, functions or files have.
    pub q: String,
    /// A service.
    pub service: String,
    /// A state.
    pub state: String,
    /// A build.
    pub build: String,
    /// A host.
    pub host: String,
    /// A function on the stack.
    pub function: String,
    /// `last-seen`, `first-seen`, `reports` or `hosts`.
    pub sort: String,
    /// Where the page before ended.
    pub after: String,
    /// The most entries, up to 200.
    pub limit: Option<u32>,
}

impl ListParameters {
    /// Returns the filter of the database.
    ///
    /// # Errors
    /// Fails if a parameter has an impossible value.
    pub fn filter(&self) -> Result<GroupFilter> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let order = match &*self.sort {
            "" | "last-seen" => GroupOrder::LastSeen,
            "first-seen" => GroupOrder::FirstSeen,
            "reports" => GroupOrder::Reports,
            "hosts" => GroupOrder::Hosts,
            other => {
                return Err(Error::Invalid(format!(
                    "groups cannot be sorted by \"{}\"; use last-seen, first-seen, reports or hosts",
                    other.escape_debug()
                )));
            }
        };
        Ok(GroupFilter {
            words: self.q.clone(),
            service: some(&self.service),
            state: some(&self.state),
            build: some(&self.build),
            host: some(&self.host),
            function: some(&self.function),
            order,
            after: some(&self.after),
            limit: i64::from(self.limit.unwrap_or(50).clamp(1, 200)),
        })
    }
}

/// A group in JSON.
#[derive(Serialize)]
pub struct GroupView {
    id: String,
    title: String,
    signature: String,
    /// The version of the signature.
    grouping_version: i64,
    provisional: bool,
    service: String,
    signal: i64,
    state: String,
    state_since: String,
    assignee: Option<String>,
    first_seen: String,
    last_seen: String,
    first_build: String,
    last_build: String,
    reports: i64,
    hosts: i64,
    bundles: i64,
    link: String,
    /// The same crashes by the version of the grouping that is computed beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<NextView>,
}

/// The groups of a group's crashes by another version of the grouping.
#[derive(Serialize)]
struct NextView {
    version: i64,
    switch_at: String,
    /// The groups that the crashes would have.
    groups: Vec<ComparedView>,
    /// Other groups that would become one with this one, or with a part of it.
    merged_with: Vec<ComparedView>,
}

/// A group before or after a change of versions.
#[derive(Serialize)]
struct ComparedView {
    id: String,
    title: String,
    signature: String,
    reports: i64,
}

impl From<ComparedGroup> for ComparedView {
    fn from(group: ComparedGroup) -> Self {
        Self {
            id: group.id,
            title: group.title,
            signature: group.signature,
            reports: group.reports,
        }
    }
}

impl GroupView {
    fn new(hub: &Hub, group: GroupRow) -> Self {
        Self {
            link: format!("{}/g/{}", hub.config.public_url(), group.id),
            id: group.id,
            title: group.title,
            signature: group.signature,
            grouping_version: group.grouping_version,
            provisional: group.is_provisional,
            service: group.service,
            signal: group.signal,
            state: group.state_name,
            state_since: clock::iso_date(group.state_since),
            assignee: group.assignee,
            first_seen: clock::iso_date(group.first_seen),
            last_seen: clock::iso_date(group.last_seen),
            first_build: group.first_build,
            last_build: group.last_build,
            reports: group.reports,
            hosts: group.hosts,
            bundles: group.bundles,
            next: None,
        }
    }
}

/// A page of groups.
#[derive(Serialize)]
pub struct GroupPage {
    groups: Vec<GroupView>,
    /// The value of `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists groups.
///
/// # Errors
/// Fails if a parameter is malformed, or the database fails.
pub async fn list(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Json<GroupPage>> {
    let (groups, next) = hub.database.list_groups(&parameters.filter()?).await?;
    let groups = groups
        .into_iter()
        .map(|group| GroupView::new(&hub, group))
        .collect();
    Ok(Json(GroupPage { groups, next }))
}

/// Resolves, archives or reopens a group, and returns it.
///
/// # Errors
/// Fails if the action is malformed, if there is no such group, or the database fails.
pub async fn change_state(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Body(action): Body<Action>,
) -> Result<Json<GroupView>> {
    let _ = act(&hub.database, hub.recorder.outbox(), &id, &action, &caller.name).await?;
    let group = hub.database.group(&id).await?;
    Ok(Json(GroupView::new(&hub, group)))
}

/// Returns a group.
///
/// # Errors
/// Fails if there is no such group, or the database fails.
pub async fn one(State(hub): State<Arc<Hub>>, Path(id): Path<String>) -> Result<Json<GroupView>> {
    let group = hub.database.group(&id).await?;
    let policy = hub.database.grouping_policy().await?;
    let mut view = GroupView::new(&hub, group);
    if let Some(next) = policy.next {
        let groups = hub.database.next_groups_of(&view.id, COMPARED).await?;
        let merged_with = hub.database.merged_with(&view.id, COMPARED).await?;
        view.next = Some(NextView {
            version: next.version.number(),
            switch_at: clock::iso_date(next.switch_at),
            groups: groups.into_iter().map(ComparedView::from).collect(),
            merged_with: merged_with.into_iter().map(ComparedView::from).collect(),
        });
    }
    Ok(Json(view))
}
