//! Rules of grouping, and the versions of signatures.

use super::Database;
use super::jobs::{self, JobKind};
use super::tokens::new_id;
use crate::clock;
use crate::error::{Error, Result};
use crate::grouping::rules::{MAX_RULES, Rule, RuleSet};
use crate::grouping::signature::Version;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The most rules of all services.
pub const MAX_ALL_RULES: usize = 500;
/// Revisions of rules that are kept compiled.
const CACHED: usize = 8;
/// The time between a change and the job that applies it to all keys. Transactions that began
/// before the change end in between.
const PAUSE: i64 = 2 * clock::SECOND;

/// A rule as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRow {
    /// The identifier.
    pub id: String,
    /// The place in the order of all rules.
    pub position: i64,
    /// The service. `None`: all services.
    pub service: Option<String>,
    /// The action: `group-by`, `ignore` or `ignore-up-to`.
    pub action: String,
    /// The pattern, and for `group-by` possibly ` as NAME`.
    pub pattern: String,
    /// The time of its creation.
    pub created: i64,
    /// The person or token that made it.
    pub author: String,
}

impl RuleRow {
    fn read(row: &AnyRow) -> Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            position: row.try_get("position")?,
            service: row.try_get("service")?,
            action: row.try_get("action")?,
            pattern: row.try_get("pattern")?,
            created: row.try_get("created")?,
            author: row.try_get("author")?,
        })
    }

    /// Returns the rule as one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} {}", self.action, self.pattern)
    }

    fn is_for(&self, service: &str) -> bool {
        self.service.as_deref().is_none_or(|own| own == service)
    }
}

/// A version that is computed beside the one of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextVersion {
    /// The version.
    pub version: Version,
    /// The time since which it is computed.
    pub since: i64,
    /// The time at which it replaces the other one.
    pub switch_at: i64,
}

/// The compiled rules of all services.
#[derive(Debug, Default)]
pub struct ServiceRules {
    /// The rules of services that have some of their own.
    own: HashMap<String, RuleSet>,
    /// The rules of all other services.
    common: RuleSet,
}

impl ServiceRules {
    /// Compiles rules.
    ///
    /// # Errors
    /// Fails if a service would have too many rules.
    pub fn new(rows: &[RuleRow]) -> Result<Self> {
        let mut compiled = Vec::with_capacity(rows.len());
        for row in rows {
            match Rule::new(&row.action, &row.pattern) {
                Ok(rule) => compiled.push((row, Arc::new(rule))),
                // A newer hub may have made it.
                Err(error) => tracing::warn!("rule {} is left out: {error}", row.id),
            }
        }
        let set = |is_in: &dyn Fn(&RuleRow) -> bool| {
            let rules = compiled.iter().filter(|(row, _)| is_in(row));
            let rules = rules.map(|(_, rule)| rule.clone()).collect();
            RuleSet::new(rules).map_err(|error| Error::Conflict(error.to_string()))
        };
        let services: BTreeSet<&String> = rows.iter().filter_map(|row| row.service.as_ref()).collect();
        let mut own = HashMap::new();
        for service in services {
            own.insert(service.clone(), set(&|row| row.is_for(service))?);
        }
        Ok(Self {
            common: set(&|row| row.service.is_none())?,
            own,
        })
    }

    /// Returns the rules of a service.
    #[must_use]
    pub fn of(&self, service: &str) -> &RuleSet {
        self.own.get(service).unwrap_or(&self.common)
    }
}

/// How crashes are grouped at a moment.
#[derive(Clone, Debug)]
pub struct GroupingPolicy {
    /// The revision, which another one replaces at each change.
    pub revision: String,
    /// The version of the signatures.
    pub version: Version,
    /// The version beside it.
    pub next: Option<NextVersion>,
    rules: Arc<ServiceRules>,
}

impl GroupingPolicy {
    /// Returns the rules of a service.
    #[must_use]
    pub fn rules(&self, service: &str) -> &RuleSet {
        self.rules.of(service)
    }
}

/// The compiled rules of the latest revisions. Revisions are random, so that databases share it.
static COMPILED: Mutex<Vec<(String, Arc<ServiceRules>)>> = Mutex::new(Vec::new());

/// Returns how crashes are grouped now. A transaction that groups a key calls this function, so
/// that all hubs use a change from its commit on.
///
/// # Errors
/// Fails if the database fails, or has a version that this hub does not know.
pub async fn policy(connection: &mut AnyConnection) -> Result<GroupingPolicy> {
    let select = "SELECT revision, version, next_version, next_since, switch_at FROM grouping_state WHERE id = 'grouping'";
    let row = sqlx::query(select).fetch_one(&mut *connection).await?;
    let version = |number: i64| Version::try_from(number).map_err(|error| Error::Conflict(error.to_string()));
    let next = match row.try_get::<Option<i64>, _>("next_version")? {
        Some(number) => Some(NextVersion {
            version: version(number)?,
            since: row.try_get::<Option<i64>, _>("next_since")?.unwrap_or_default(),
            switch_at: row.try_get::<Option<i64>, _>("switch_at")?.unwrap_or(i64::MAX),
        }),
        None => None,
    };
    let revision: String = row.try_get("revision")?;
    Ok(GroupingPolicy {
        version: version(row.try_get("version")?)?,
        next,
        rules: compiled(connection, &revision).await?,
        revision,
    })
}

/// Returns the compiled rules of a revision.
async fn compiled(connection: &mut AnyConnection, revision: &str) -> Result<Arc<ServiceRules>> {
    if revision.is_empty() {
        // No rule was ever made.
        return Ok(Arc::default());
    }
    let find = |cache: &[(String, Arc<ServiceRules>)]| {
        let found = cache.iter().find(|(known, _)| known == revision);
        found.map(|(_, rules)| rules.clone())
    };
    if let Some(rules) = find(&COMPILED.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(rules);
    }
    let rules = Arc::new(ServiceRules::new(&all(connection).await?)?);
    let mut cache = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rules) = find(&cache) {
        return Ok(rules);
    }
    if cache.len() >= CACHED {
        cache.remove(0);
    }
    cache.push((revision.to_owned(), rules.clone()));
    Ok(rules)
}

/// Returns all rules in their order.
///
/// # Errors
/// Fails if the database fails.
pub async fn all(connection: &mut AnyConnection) -> Result<Vec<RuleRow>> {
    let rows = sqlx::query("SELECT * FROM rules ORDER BY position, id")
        .fetch_all(&mut *connection)
        .await?;
    rows.iter().map(RuleRow::read).collect()
}

/// Checks the number of rules.
///
/// # Errors
/// Fails if there are too many, of all services or of one.
pub fn check_count(rules: &[RuleRow]) -> Result<()> {
    if rules.len() > MAX_ALL_RULES {
        let text = format!("the hub has at most {MAX_ALL_RULES} rules; delete one first");
        return Err(Error::Conflict(text));
    }
    let services = rules.iter().map(|rule| rule.service.as_deref());
    for service in services.collect::<BTreeSet<_>>() {
        let is_in = |rule: &&RuleRow| match service {
            Some(service) => rule.is_for(service),
            None => rule.service.is_none(),
        };
        if rules.iter().filter(is_in).count() > MAX_RULES {
            let text = format!("a service has at most {MAX_RULES} rules; delete one first");
            return Err(Error::Conflict(text));
        }
    }
    Ok(())
}

/// Adds a rule.
///
/// # Errors
/// Fails if the database fails.
pub async fn insert(connection: &mut AnyConnection, rule: &RuleRow) -> Result<()> {
    let insert = "INSERT INTO rules (id, position, service, action, pattern, created, author) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7)";
    sqlx::query(insert)
        .bind(&rule.id)
        .bind(rule.position)
        .bind(rule.service.as_deref())
        .bind(&rule.action)
        .bind(&rule.pattern)
        .bind(rule.created)
        .bind(&rule.author)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Deletes a rule, and returns it.
///
/// # Errors
/// Fails if there is no such rule, or the database fails.
pub async fn delete(connection: &mut AnyConnection, id: &str) -> Result<RuleRow> {
    let row = sqlx::query("DELETE FROM rules WHERE id = $1 RETURNING *")
        .bind(id)
        .fetch_optional(&mut *connection)
        .await?;
    let row = row.ok_or_else(|| Error::Absent(format!("rule {id}")))?;
    RuleRow::read(&row)
}

/// Notes that rules or versions changed, and adds the job that groups all keys again.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_change(connection: &mut AnyConnection) -> Result<()> {
    let revision = new_id()?;
    sqlx::query("UPDATE grouping_state SET revision = $1 WHERE id = 'grouping'")
        .bind(&revision)
        .execute(&mut *connection)
        .await?;
    jobs::add(connection, JobKind::Regroup, &revision, clock::now() + PAUSE).await
}

/// Begins to compute a version beside the one of the groups, or ends it.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_next(connection: &mut AnyConnection, next: Option<NextVersion>) -> Result<()> {
    let update =
        "UPDATE grouping_state SET next_version = $1, next_since = $2, switch_at = $3 WHERE id = 'grouping'";
    sqlx::query(update)
        .bind(next.map(|next| next.version.number()))
        .bind(next.map(|next| next.since))
        .bind(next.map(|next| next.switch_at))
        .execute(&mut *connection)
        .await?;
    sqlx::query("DELETE FROM next_groups")
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Replaces the version of the groups.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_version(connection: &mut AnyConnection, version: Version) -> Result<()> {
    sqlx::query("UPDATE grouping_state SET version = $1 WHERE id = 'grouping'")
        .bind(version.number())
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Returns how crashes are grouped now.
    ///
    /// # Errors
    /// Fails if the database fails, or has a version that this hub does not know.
    pub async fn grouping_policy(&self) -> Result<GroupingPolicy> {
        policy(&mut *self.reader().acquire().await?).await
    }

    /// Returns all rules in their order.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn rules(&self) -> Result<Vec<RuleRow>> {
        all(&mut *self.reader().acquire().await?).await
    }
}
