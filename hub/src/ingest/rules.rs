//! Changes of the rules of grouping, and their trial on past crashes.

use super::key_group;
use crate::clock;
use crate::database::rules::{self, RuleRow, ServiceRules};
use crate::database::tokens::new_id;
use crate::database::{Database, audit, leases, stack_keys, transact};
use crate::error::{Error, Result};
use crate::grouping::rules::Rule;
use crate::grouping::trial::{GroupedKey, Trial, TrialRun};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The longest name of a service, in characters.
const MAX_SERVICE: usize = 255;
/// The keys that are read at once.
const BATCH: i64 = 500;
/// The most keys of a trial.
const MAX_KEYS: u64 = 20_000;
/// The time after which a trial ends with the keys so far.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Trials at once in this process.
static TRIALS: Semaphore = Semaphore::const_new(1);

/// A rule that is to be added.
#[derive(Clone, Debug)]
pub struct NewRule {
    /// The service. `None`: all services.
    pub service: Option<String>,
    /// The rule.
    pub rule: Rule,
}

impl NewRule {
    /// Builds a rule from a line and a service. An empty service is all services.
    ///
    /// # Errors
    /// Fails if the line or the service is invalid.
    pub fn new(line: &str, service: &str) -> Result<Self> {
        let rule = line.parse().map_err(invalid)?;
        let service = service.trim();
        if service.chars().count() > MAX_SERVICE || service.chars().any(char::is_control) {
            return Err(Error::Invalid(format!(
                "a service has at most {MAX_SERVICE} printable characters"
            )));
        }
        Ok(Self {
            service: (!service.is_empty()).then(|| service.to_owned()),
            rule,
        })
    }

    /// Returns the row of the rule, after all others.
    fn row(&self, rows: &[RuleRow], actor: &str) -> Result<RuleRow> {
        let line = self.rule.to_string();
        let (action, pattern) = line.split_once(' ').unwrap_or((&line, ""));
        let row = RuleRow {
            id: new_id()?,
            position: rows.last().map_or(0, |last| last.position) + 1,
            service: self.service.clone(),
            action: action.to_owned(),
            pattern: pattern.to_owned(),
            created: clock::now(),
            author: actor.to_owned(),
        };
        let is_known = rows
            .iter()
            .any(|one| one.service == row.service && one.action == row.action && one.pattern == row.pattern);
        match is_known {
            true => Err(Error::Conflict("this rule is there already".to_owned())),
            false => Ok(row),
        }
    }
}

fn invalid(error: crate::grouping::InvalidRule) -> Error {
    Error::Invalid(error.to_string())
}

/// Adds a rule after all others, and returns it. A job applies it to past crashes.
///
/// # Errors
/// Fails if the rule is there already, if there are too many, or the database fails.
pub async fn add(database: &Database, new: &NewRule, actor: &str) -> Result<RuleRow> {
    transact!(database, connection => {
        leases::lock(connection, "grouping").await?;
        let mut rows = rules::all(connection).await?;
        let row = new.row(&rows, actor)?;
        rows.push(row.clone());
        rules::check_count(&rows)?;
        rules::insert(connection, &row).await?;
        rules::note_change(connection).await?;
        audit::add(connection, actor, "add rule", &subject(&row)).await?;
        Ok(row)
    })
}

/// Deletes a rule. A job groups past crashes without it.
///
/// # Errors
/// Fails if there is no such rule, or the database fails.
pub async fn remove(database: &Database, id: &str, actor: &str) -> Result<()> {
    transact!(database, connection => {
        leases::lock(connection, "grouping").await?;
        let row = rules::delete(connection, id).await?;
        rules::note_change(connection).await?;
        audit::add(connection, actor, "delete rule", &subject(&row)).await
    })
}

/// Returns a rule as the audit log shows it.
fn subject(row: &RuleRow) -> String {
    match &row.service {
        Some(service) => format!("{} for {service}", row.line()),
        None => row.line(),
    }
}

/// A change of the rules that is tried.
#[derive(Clone, Debug, Default)]
pub struct RuleChange {
    /// The rule to add.
    pub add: Option<NewRule>,
    /// The identifier of the rule to delete.
    pub remove: Option<String>,
}

/// The result of a trial.
#[derive(Clone, Debug, Default)]
pub struct TrialResult {
    /// The effect on the keys that were tried.
    pub trial: Trial,
    /// The keys that were tried.
    pub keys: u64,
    /// The keys of the service, or of all services.
    pub all_keys: u64,
    /// The rule that was deleted in the trial.
    pub removed: Option<RuleRow>,
}

/// Tries a change on past crashes. Nothing is saved. A trial of too many keys ends with a part of
/// them, which is a random one, because keys are hashes.
///
/// # Errors
/// Fails if the change is impossible, or the database fails.
pub async fn try_change(database: &Database, change: &RuleChange) -> Result<TrialResult> {
    let mut rows = database.rules().await?;
    let mut result = TrialResult::default();
    let mut service = None;
    if let Some(id) = &change.remove {
        let at = rows.iter().position(|row| row.id == *id);
        let at = at.ok_or_else(|| Error::Absent(format!("rule {}", id.escape_debug())))?;
        let row = rows.remove(at);
        service.clone_from(&row.service);
        result.removed = Some(row);
    }
    if let Some(new) = &change.add {
        rows.push(new.row(&rows, "")?);
        service.clone_from(&new.service);
    }
    if change.add.is_some() && change.remove.is_some() {
        service = None;
    }
    rules::check_count(&rows)?;
    let _place = TRIALS.acquire().await.map_err(|_| Error::Ending)?;
    let rules = Arc::new(ServiceRules::new(&rows)?);
    let version = database.grouping_policy().await?.version;
    let service = service.as_deref();
    result.all_keys = database.key_count(service).await?.unsigned_abs();
    let started = Instant::now();
    let mut run = TrialRun::default();
    let mut after = String::new();
    while run.keys() < MAX_KEYS && started.elapsed() < MAX_TIME {
        let mut connection = database.reader().acquire().await?;
        let batch = stack_keys::with_titles(&mut connection, service, &after, BATCH).await?;
        drop(connection);
        let Some((last, _)) = batch.last() else {
            break;
        };
        after.clone_from(&last.key);
        let rules = rules.clone();
        let add = move || {
            for (key, title) in batch {
                if started.elapsed() >= MAX_TIME {
                    break;
                }
                let grouping = key_group::grouping_of(&key, version, rules.of(&key.service)).grouping;
                let grouped = GroupedKey {
                    title,
                    reports: key.reports.unsigned_abs(),
                    key: key.key,
                    service: key.service,
                    group: key.group,
                };
                run.add(&grouped, grouping);
            }
            run
        };
        run = tokio::task::spawn_blocking(add)
            .await
            .map_err(|error| Error::system("try rules")(std::io::Error::other(error)))?;
    }
    result.keys = run.keys();
    result.trial = run.finish();
    Ok(result)
}
