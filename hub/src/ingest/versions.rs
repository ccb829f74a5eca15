//! Another version of the signatures: computed beside the old one for some days, then switched.

use crate::clock;
use crate::database::rules::{self, NextVersion};
use crate::database::{Database, audit, leases, transact};
use crate::error::{Error, Result};
use crate::grouping::signature::Version;

/// The longest time for which two versions are computed, in days.
const MAX_DAYS: u32 = 365;
/// The actor of a switch whose time has come.
const BY_TIME: &str = "the hub";

/// Begins to compute a version beside the one of the groups. After `days` it replaces that one.
///
/// # Errors
/// Fails if the version is unknown or in use, if the days are out of range, or the database fails.
pub async fn compare(database: &Database, version: Option<i64>, days: u32, actor: &str) -> Result<()> {
    let version = match version {
        Some(number) => Version::try_from(number).map_err(|error| Error::Invalid(error.to_string()))?,
        None => Version::LATEST,
    };
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(Error::Invalid(format!(
            "two versions are computed for 1 to {MAX_DAYS} days"
        )));
    }
    transact!(database, connection => {
        leases::lock(connection, "grouping").await?;
        let policy = rules::policy(connection).await?;
        if policy.version == version {
            let text = format!("the groups have version {} already", version.number());
            return Err(Error::Conflict(text));
        }
        let since = clock::now();
        let switch_at = since + i64::from(days) * clock::DAY;
        rules::set_next(connection, Some(NextVersion { version, since, switch_at })).await?;
        rules::note_change(connection).await?;
        audit::add(connection, actor, "compare grouping", &format!("version {}", version.number())).await
    })
}

/// Ends the computation beside. The groups keep their version.
///
/// # Errors
/// Fails if no version is computed beside, or the database fails.
pub async fn cancel(database: &Database, actor: &str) -> Result<()> {
    transact!(database, connection => {
        leases::lock(connection, "grouping").await?;
        let next = rules::policy(connection).await?.next.ok_or_else(nothing)?;
        rules::set_next(connection, None).await?;
        let subject = format!("version {}", next.version.number());
        audit::add(connection, actor, "cancel grouping", &subject).await
    })
}

/// Replaces the version of the groups by the one beside. A job moves all keys.
///
/// # Errors
/// Fails if no version is computed beside, or the database fails.
pub async fn switch(database: &Database, actor: &str) -> Result<()> {
    match switch_at(database, actor, i64::MAX).await? {
        true => Ok(()),
        false => Err(nothing()),
    }
}

/// Replaces the version of the groups if its time has come. Returns whether it did.
///
/// # Errors
/// Fails if the database fails.
pub async fn switch_if_due(database: &Database, now: i64) -> Result<bool> {
    let next = database.grouping_policy().await?.next;
    if next.is_none_or(|next| next.switch_at > now) {
        return Ok(false);
    }
    switch_at(database, BY_TIME, now).await
}

async fn switch_at(database: &Database, actor: &str, now: i64) -> Result<bool> {
    transact!(database, connection => {
        leases::lock(connection, "grouping").await?;
        let next = rules::policy(connection).await?.next;
        let Some(next) = next.filter(|next| next.switch_at <= now) else {
            return Ok(false);
        };
        rules::set_version(connection, next.version).await?;
        rules::set_next(connection, None).await?;
        rules::note_change(connection).await?;
        let subject = format!("version {}", next.version.number());
        audit::add(connection, actor, "switch grouping", &subject).await?;
        Ok(true)
    })
}

fn nothing() -> Error {
    Error::Conflict("no other version of the grouping is computed".to_owned())
}
