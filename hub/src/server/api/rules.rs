//! Rules of the grouping, and versions of the signatures, as JSON.

use super::json::Body;
use crate::clock;
use crate::database::rules::RuleRow;
use crate::error::Result;
use crate::grouping::trial::Trial;
use crate::hub::Hub;
use crate::ingest::rules::{self, NewRule, RuleChange};
use crate::ingest::{regroup_all, versions};
use crate::server::caller::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Merges and splits in an answer.
const ROWS: i64 = 200;

/// A rule in JSON.
#[derive(Serialize)]
pub struct RuleView {
    id: String,
    /// The rule as one line.
    rule: String,
    action: String,
    pattern: String,
    /// The service. `None`: all services.
    service: Option<String>,
    created: String,
    author: String,
}

impl From<RuleRow> for RuleView {
    fn from(row: RuleRow) -> Self {
        Self {
            rule: row.line(),
            id: row.id,
            action: row.action,
            pattern: row.pattern,
            service: row.service,
            created: clock::iso_date(row.created),
            author: row.author,
        }
    }
}

/// The rules in their order.
#[derive(Serialize)]
pub struct RuleList {
    rules: Vec<RuleView>,
    /// How much of the past crashes is grouped by these rules, from 0 to 1. `None`: all are.
    regrouping: Option<f64>,
}

/// Lists rules.
///
/// # Errors
/// Fails if the database fails.
pub async fn list(State(hub): State<Arc<Hub>>) -> Result<Json<RuleList>> {
    let rules = hub.database.rules().await?;
    Ok(Json(RuleList {
        rules: rules.into_iter().map(RuleView::from).collect(),
        regrouping: regroup_all::done(&hub.database).await?,
    }))
}

/// A rule to add.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleBody {
    /// The rule as one line.
    rule: String,
    /// The service. `None`: all services.
    #[serde(default)]
    service: Option<String>,
}

impl RuleBody {
    fn rule(&self) -> Result<NewRule> {
        NewRule::new(&self.rule, self.service.as_deref().unwrap_or_default())
    }
}

/// Adds a rule after all others.
///
/// # Errors
/// Fails if the rule is invalid or there already, if there are too many, or the database fails.
pub async fn add(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Body(body): Body<RuleBody>,
) -> Result<(StatusCode, Json<RuleView>)> {
    let row = rules::add(&hub.database, &body.rule()?, &caller.name).await?;
    Ok((StatusCode::CREATED, Json(row.into())))
}

/// A change to try.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TryBody {
    /// The rule to add.
    add: Option<RuleBody>,
    /// The identifier of the rule to leave out.
    remove: Option<String>,
}

/// The effect that a change would have.
#[derive(Serialize)]
pub struct TrialView {
    /// The stack keys that were tried.
    keys: u64,
    /// All stack keys that the rules are for.
    all_keys: u64,
    #[serde(flatten)]
    trial: Trial,
}

/// Tries a change of the rules on past crashes.
///
/// # Errors
/// Fails if the change is impossible, or the database fails.
pub async fn try_change(State(hub): State<Arc<Hub>>, Body(body): Body<TryBody>) -> Result<Json<TrialView>> {
    let change = RuleChange {
        add: body.add.as_ref().map(RuleBody::rule).transpose()?,
        remove: body.remove,
    };
    let result = rules::try_change(&hub.database, &change).await?;
    Ok(Json(TrialView {
        keys: result.keys,
        all_keys: result.all_keys,
        trial: result.trial,
    }))
}

/// Deletes a rule.
///
/// # Errors
/// Fails if there is no such rule, or the database fails.
pub async fn remove(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode> {
    rules::remove(&hub.database, &id, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The version of the signatures, and the one beside it.
#[derive(Serialize)]
pub struct GroupingView {
    version: i64,
    /// How much of the past crashes has its groups, from 0 to 1. `None`: all have.
    regrouping: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<NextView>,
}

/// The version beside, and what it would change.
#[derive(Serialize)]
struct NextView {
    version: i64,
    since: String,
    switch_at: String,
    differences: &'static [&'static str],
    /// The stack keys that are compared.
    keys: i64,
    all_keys: i64,
    /// The groups that would become one with others.
    merged: i64,
    /// The groups that would be split.
    split: i64,
    merges: Vec<MergeView>,
    splits: Vec<SplitView>,
}

/// Groups that would become one.
#[derive(Serialize)]
struct MergeView {
    title: String,
    groups: i64,
    reports: i64,
}

/// A group that would be split.
#[derive(Serialize)]
struct SplitView {
    id: String,
    title: String,
    groups: i64,
    reports: i64,
}

/// Returns the version of the signatures, and what the one beside would change.
///
/// # Errors
/// Fails if the database fails.
pub async fn grouping(State(hub): State<Arc<Hub>>) -> Result<Json<GroupingView>> {
    let policy = hub.database.grouping_policy().await?;
    let mut view = GroupingView {
        version: policy.version.number(),
        regrouping: regroup_all::done(&hub.database).await?,
        next: None,
    };
    if let Some(next) = policy.next {
        let change = hub.database.version_change(ROWS).await?;
        let merges = change.merges.into_iter();
        let splits = change.splits.into_iter();
        view.next = Some(NextView {
            version: next.version.number(),
            since: clock::iso_date(next.since),
            switch_at: clock::iso_date(next.switch_at),
            differences: next.version.differences(),
            keys: change.keys,
            all_keys: change.all_keys,
            merged: change.merged,
            split: change.split,
            merges: merges
                .map(|(title, groups, reports)| MergeView {
                    title,
                    groups,
                    reports,
                })
                .collect(),
            splits: splits
                .map(|(id, title, groups, reports)| SplitView {
                    id,
                    title,
                    groups,
                    reports,
                })
                .collect(),
        });
    }
    Ok(Json(view))
}

/// A change of versions.
#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
pub enum VersionAction {
    /// To compute a version beside the one of the groups.
    Compare {
        /// The version. `None`: the latest.
        #[serde(default)]
        version: Option<i64>,
        /// The days after which it replaces the other one. `None`: as configured.
        #[serde(default)]
        days: Option<u32>,
    },
    /// To replace the version now.
    Switch,
    /// To end the comparison.
    Cancel,
}

/// Begins or ends the computation of another version, or replaces the version of the groups.
///
/// # Errors
/// Fails if the change is impossible, or the database fails.
pub async fn change_grouping(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Body(action): Body<VersionAction>,
) -> Result<Json<GroupingView>> {
    match action {
        VersionAction::Compare { version, days } => {
            let days = days.unwrap_or(hub.config.grouping.compare_days);
            versions::compare(&hub.database, version, days, &caller.name).await?;
        }
        VersionAction::Switch => versions::switch(&hub.database, &caller.name).await?,
        VersionAction::Cancel => versions::cancel(&hub.database, &caller.name).await?,
    }
    grouping(State(hub)).await
}
