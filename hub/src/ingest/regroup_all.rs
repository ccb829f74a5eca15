//! The job that groups all keys again after a change of rules or versions.
//!
//! The job goes through the keys in their order, some at a time. A transaction moves the keys of a
//! batch and notes how far the job has come, so that another hub can go on. A later change has a
//! job of its own, and ends this one.

use super::key_group;
use super::record::{group_words, new_group};
use super::take_over;
use crate::analysis::Progress;
use crate::clock;
use crate::database::groups::{self, GroupRow};
use crate::database::jobs::{self, Job};
use crate::database::next_groups::{self, NextGroup};
use crate::database::rules::{self, GroupingPolicy};
use crate::database::stack_keys::{self, StackKey};
use crate::database::{Database, reports, transact};
use crate::error::{Error, Result};
use crate::grouping::signature::{self, Grouping};
use sqlx::AnyConnection;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// The keys of a transaction.
const BATCH: i64 = 100;

/// A key, and the groups that it is to have.
#[derive(Clone, Debug)]
struct Regrouped {
    key: StackKey,
    /// The grouping, if the key moves.
    moves: Option<Grouping>,
    next: Option<NextGroup>,
}

/// Groups all keys again.
///
/// # Errors
/// Fails if the database fails, or another hub has taken the job over.
pub async fn run(database: &Database, job: &Job, progress: &watch::Sender<Progress>) -> Result<()> {
    let mut done_to = job.done_to.clone().unwrap_or_default();
    loop {
        let policy = database.grouping_policy().await?;
        let keys = read(database, &done_to).await?;
        let Some(last) = keys.last().filter(|_| policy.revision == job.subject) else {
            return database.finish_job(job).await;
        };
        let before = std::mem::replace(&mut done_to, last.key.clone());
        let wanted = policy.clone();
        let compute = move || keys.into_iter().map(|key| regrouped(key, &wanted)).collect();
        let batch: Vec<Regrouped> = tokio::task::spawn_blocking(compute)
            .await
            .map_err(|error| Error::system("group keys")(std::io::Error::other(error)))?;
        let is_current = transact!(database, connection => {
            let now = rules::policy(connection).await?;
            if now.revision != policy.revision || now.version != policy.version || now.next != policy.next {
                return Ok(false);
            }
            jobs::set_done_to(connection, job, &done_to).await?;
            apply(connection, &batch, &policy).await?;
            Ok(true)
        })?;
        if !is_current {
            // The next round computes the same keys by the other policy, or ends.
            done_to = before;
        }
        progress.send_replace(Progress {
            stage: "grouping".to_owned(),
            done: part_before(&done_to),
        });
    }
}

/// Returns how much of the job is done, from 0 to 1. `None`: all keys have their groups.
///
/// # Errors
/// Fails if the database fails.
pub async fn done(database: &Database) -> Result<Option<f64>> {
    let done_to = database.regroup_done_to().await?;
    Ok(done_to.map(|key| part_before(&key)))
}

/// Returns the part of all keys that are not greater than a key. Keys are hashes, so that they are
/// spread evenly.
fn part_before(key: &str) -> f64 {
    let digits = key
        .get(..8)
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    digits.map_or(0.0, |digits| f64::from(digits) / f64::from(u32::MAX))
}

/// Returns the keys after a key.
async fn read(database: &Database, after: &str) -> Result<Vec<StackKey>> {
    let mut connection = database.reader().acquire().await?;
    let mut keys = stack_keys::after(&mut connection, after, BATCH).await?;
    for key in keys.iter_mut().filter(|key| key.report_cause.is_none()) {
        // The key is older than the column.
        let first = reports::first_of_key(&mut connection, &key.key).await?;
        let parsed = first.and_then(|first| first.parsed().ok());
        let cause = parsed.map(|report| key_group::cause_of_report(&report));
        key.report_cause = cause.and_then(|cause| serde_json::to_string(&cause).ok());
    }
    Ok(keys)
}

fn regrouped(key: StackKey, policy: &GroupingPolicy) -> Regrouped {
    let rules = policy.rules(&key.service);
    let grouping = key_group::grouping_of(&key, policy.version, rules).grouping;
    let is_same = signature::group_id(&key.service, &grouping) == key.group;
    Regrouped {
        moves: (!is_same).then_some(grouping),
        next: key_group::next_group(&key, policy),
        key,
    }
}

/// Moves the keys of a batch, and computes the counts of their groups once.
async fn apply(connection: &mut AnyConnection, batch: &[Regrouped], policy: &GroupingPolicy) -> Result<()> {
    // The groups that keys left, each with the one that took the last of them over.
    let mut left: BTreeMap<String, String> = BTreeMap::new();
    // A group may be split into several.
    let mut touched: BTreeSet<String> = BTreeSet::new();
    for regrouped in batch {
        let key = &regrouped.key;
        let found = stack_keys::find(connection, &key.key).await?;
        let is_unchanged = found.is_some_and(|found| {
            found.group == key.group && found.frames == key.frames && found.cause == key.cause
        });
        // A bundle that came in between was grouped by the new rules already.
        if !is_unchanged {
            continue;
        }
        if let Some(next) = &regrouped.next {
            next_groups::set(connection, &key.key, next).await?;
        }
        if let Some(grouping) = &regrouped.moves
            && let Some(to) = move_key(connection, key, grouping, policy).await?
        {
            touched.extend([key.group.clone(), to.clone()]);
            left.insert(key.group.clone(), to);
        }
    }
    for group in &touched {
        groups::recount(connection, group).await?;
    }
    for (from, to) in &left {
        take_over::finish(connection, from, to).await?;
    }
    Ok(())
}

/// Moves a key to its group, which is made if need be. Returns the group. `None`: the key moved in
/// between.
async fn move_key(
    connection: &mut AnyConnection,
    key: &StackKey,
    grouping: &Grouping,
    policy: &GroupingPolicy,
) -> Result<Option<String>> {
    let now = clock::now();
    let Some(old) = groups::find(connection, &key.group).await? else {
        return Ok(None);
    };
    let group = GroupRow {
        last_build: old.last_build.clone(),
        ..new_group(
            &key.service,
            key.signal,
            grouping,
            (old.first_seen, now),
            &old.first_build,
        )
    };
    let frames = key.frames.as_deref().unwrap_or(&key.addresses);
    let words = group_words(&group, frames);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let is_new = groups::insert(connection, &group, &words).await?;
    let reason = match old.grouping_version == policy.version.number() {
        true => "rules",
        false => "version",
    };
    if !stack_keys::set_group(connection, &key.key, &old.id, &group.id, now, reason).await? {
        return Ok(None);
    }
    take_over::share(connection, &old, &group.id, is_new, now).await?;
    Ok(Some(group.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_the_part_of_all_hashes() {
        assert!(part_before("") < 1e-9);
        assert!((part_before("80000000aa") - 0.5).abs() < 1e-6);
        assert!((part_before("ffffffffff") - 1.0).abs() < 1e-6);
    }
}
