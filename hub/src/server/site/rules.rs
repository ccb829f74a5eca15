//! The page of the grouping, and what a person changes there.

use super::frame::{KeyForm, check_form, frame, see};
use crate::access::Scope;
use crate::clock;
use crate::database::rules::{NextVersion, RuleRow as Row};
use crate::error::{Error, Result};
use crate::grouping::signature::Version;
use crate::grouping::trial::TrialGroup;
use crate::hub::Hub;
use crate::ingest::rules::{self, NewRule, RuleChange, TrialResult};
use crate::ingest::{regroup_all, versions};
use crate::server::caller::Caller;
use crate::server::pages::grouping::{
    self, Comparison, GroupingPage, NamedGroup, OtherVersion, RegroupProgress, RuleRow, Trial,
};
use axum::extract::{Form, Path, State};
use axum::response::Redirect;
use axum::{Extension, Json};
use maud::Markup;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Merges and splits on the page.
const ROWS: i64 = 50;
/// The page.
const PAGE: &str = "/settings/rules";

/// The form of a rule. A frame of a crash sends the whole line, and the page its parts.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RuleForm {
    csrf: String,
    /// The whole line.
    rule: String,
    action: String,
    pattern: String,
    service: String,
    /// The identifier of a rule to try without.
    remove: String,
}

impl RuleForm {
    fn new_rule(&self) -> Result<NewRule> {
        if self.rule.is_empty() {
            return NewRule::new(&format!("{} {}", self.action, self.pattern), &self.service);
        }
        NewRule::new(&self.rule, &self.service)
    }

    fn change(&self) -> Result<RuleChange> {
        Ok(match self.remove.is_empty() {
            true => RuleChange {
                add: Some(self.new_rule()?),
                remove: None,
            },
            false => RuleChange {
                add: None,
                remove: Some(self.remove.clone()),
            },
        })
    }
}

/// Returns the page.
///
/// # Errors
/// Fails if the database fails.
pub async fn page(State(hub): State<Arc<Hub>>, Extension(caller): Extension<Caller>) -> Result<Markup> {
    render(&hub, &caller, None).await
}

/// Tries a change of the rules on past crashes, and shows what it would do.
///
/// # Errors
/// Fails if the form is foreign, the change is impossible, or the database fails.
pub async fn try_rule(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<RuleForm>,
) -> Result<Markup> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    let change = form.change()?;
    let result = rules::try_change(&hub.database, &change).await?;
    let tried = match (&result.removed, &change.add) {
        (Some(removed), _) => rule_row(removed.clone()),
        (None, Some(new)) => {
            let line = new.rule.to_string();
            let (action, pattern) = line.split_once(' ').unwrap_or((&line, ""));
            RuleRow {
                action: action.to_owned(),
                pattern: pattern.to_owned(),
                service: new.service.clone(),
                ..RuleRow::default()
            }
        }
        (None, None) => RuleRow::default(),
    };
    render(&hub, &caller, Some(trial(tried, result))).await
}

/// Adds a rule.
///
/// # Errors
/// Fails if the form is foreign, the rule is invalid, or the database fails.
pub async fn add(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<RuleForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    let _ = rules::add(&hub.database, &form.new_rule()?, &caller.name).await?;
    Ok(see(PAGE))
}

/// Deletes a rule.
///
/// # Errors
/// Fails if the form is foreign, there is no such rule, or the database fails.
pub async fn delete(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<KeyForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    rules::remove(&hub.database, &id, &caller.name).await?;
    Ok(see(PAGE))
}

/// The form of a version.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct VersionForm {
    csrf: String,
    action: String,
    version: Option<i64>,
    days: Option<u32>,
}

/// Computes another version beside the one of the groups, replaces that one, or ends this.
///
/// # Errors
/// Fails if the form is foreign, the change is impossible, or the database fails.
pub async fn change_version(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<VersionForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    let days = form.days.unwrap_or(hub.config.grouping.compare_days);
    match &*form.action {
        "compare" => versions::compare(&hub.database, form.version, days, &caller.name).await?,
        "switch" => versions::switch(&hub.database, &caller.name).await?,
        "cancel" => versions::cancel(&hub.database, &caller.name).await?,
        other => {
            let other = other.escape_debug();
            return Err(Error::Invalid(format!(
                "\"{other}\" is no change of a version; use compare, switch or cancel"
            )));
        }
    }
    Ok(see("/settings/rules#versions"))
}

/// Returns the progress of the job that groups all crashes again, for the script of the page.
///
/// # Errors
/// Fails if the database fails.
pub async fn state(State(hub): State<Arc<Hub>>) -> Result<Json<Value>> {
    Ok(Json(match progress(&hub).await? {
        Some(now) => {
            let done = f64::from(now.percent) / 100.0;
            json!({ "state": "running", "text": now.sentence(), "done": done })
        }
        None => json!({ "state": "idle", "text": "All crashes have their groups.", "done": 1 }),
    }))
}

async fn progress(hub: &Hub) -> Result<Option<RegroupProgress>> {
    let done = regroup_all::done(&hub.database).await?;
    Ok(done.map(|done| RegroupProgress {
        percent: (done.clamp(0.0, 1.0) * 100.0) as u8,
    }))
}

async fn render(hub: &Hub, caller: &Caller, trial: Option<Trial>) -> Result<Markup> {
    let database = &hub.database;
    let policy = database.grouping_policy().await?;
    let others = Version::ALL.iter().filter(|version| **version != policy.version);
    let view = GroupingPage {
        frame: frame(caller, "Grouping"),
        rules: database.rules().await?.into_iter().map(rule_row).collect(),
        trial,
        progress: progress(hub).await?,
        version: policy.version.number(),
        others: others.copied().map(other_version).collect(),
        next: match policy.next {
            Some(next) => Some(comparison(hub, next).await?),
            None => None,
        },
        compare_days: hub.config.grouping.compare_days,
        now: clock::now(),
    };
    Ok(grouping::render(&view))
}

fn rule_row(row: Row) -> RuleRow {
    RuleRow {
        id: row.id,
        service: row.service,
        action: row.action,
        pattern: row.pattern,
        created: row.created,
        author: row.author,
    }
}

fn other_version(version: Version) -> OtherVersion {
    OtherVersion {
        number: version.number(),
        differences: version.differences().iter().map(ToString::to_string).collect(),
    }
}

async fn comparison(hub: &Hub, next: NextVersion) -> Result<Comparison> {
    let change = hub.database.version_change(ROWS).await?;
    let merges = change.merges.into_iter();
    let splits = change.splits.into_iter();
    Ok(Comparison {
        version: other_version(next.version),
        since: next.since,
        switch_at: next.switch_at,
        keys: (change.keys.unsigned_abs(), change.all_keys.unsigned_abs()),
        changed: (change.merged.unsigned_abs(), change.split.unsigned_abs()),
        merges: merges
            .map(|(title, groups, reports)| (title, groups.unsigned_abs(), reports.unsigned_abs()))
            .collect(),
        splits: splits
            .map(|(id, title, groups, reports)| {
                ((Some(id), title), groups.unsigned_abs(), reports.unsigned_abs())
            })
            .collect(),
    })
}

fn trial(rule: RuleRow, result: TrialResult) -> Trial {
    let old = |group: TrialGroup| -> NamedGroup { (Some(group.id), group.title) };
    // A group after the change may not exist yet, so that it has no link.
    let new = |group: TrialGroup| -> NamedGroup { (None, group.title) };
    let effect = result.trial;
    let largest = effect.moves.into_iter().take(ROWS.unsigned_abs() as usize);
    let merges = effect.merges.into_iter();
    let splits = effect.splits.into_iter();
    Trial {
        rule,
        is_removal: result.removed.is_some(),
        keys: result.keys,
        all_keys: result.all_keys,
        moved: (effect.moved_keys, effect.moved_reports),
        moves: largest
            .map(|moved| (old(moved.from), new(moved.to), moved.reports))
            .collect(),
        merges: merges
            .map(|merge| (new(merge.to), merge.from.into_iter().map(old).collect()))
            .collect(),
        splits: splits
            .map(|split| (old(split.from), split.to.into_iter().map(new).collect()))
            .collect(),
    }
}
