//! The group of a stack key, by the rules and a version of the signatures.

use crate::database::next_groups::{self, NextGroup};
use crate::database::rules::GroupingPolicy;
use crate::database::stack_keys::StackKey;
use crate::error::Result;
use crate::grouping::cause::{CrashCause, CrashFacts};
use crate::grouping::rules::RuleSet;
use crate::grouping::signature::{self, Grouping, Version};
use crate::stack::Frame;
use backtrail_report::CrashReport;
use sqlx::AnyConnection;

/// The grouping of a key, and the frames that it is about.
#[derive(Clone, Debug)]
pub struct KeyGrouping<'a> {
    /// The grouping.
    pub grouping: Grouping,
    /// The frames: with symbols if they name a function of the program, else by address.
    pub frames: &'a [Frame],
}

/// Returns what a report says of the cause of its crash.
#[must_use]
pub fn cause_of_report(report: &CrashReport) -> CrashCause {
    CrashCause::of(&CrashFacts {
        signal: report.signal,
        code: report.code,
        fault_address: report.fault_address,
        ..CrashFacts::default()
    })
}

/// Returns the cause of a key's crashes, by its last analysis or else by its first report.
#[must_use]
pub fn cause_of(key: &StackKey) -> CrashCause {
    parsed(key.cause.as_deref()).unwrap_or_else(|| reported_cause(key))
}

fn reported_cause(key: &StackKey) -> CrashCause {
    parsed(key.report_cause.as_deref()).unwrap_or_else(|| {
        CrashCause::of(&CrashFacts {
            signal: i32::try_from(key.signal).unwrap_or_default(),
            ..CrashFacts::default()
        })
    })
}

fn parsed(cause: Option<&str>) -> Option<CrashCause> {
    cause.and_then(|text| serde_json::from_str(text).ok())
}

/// Returns the grouping of a key. A key without a function of the program is grouped by the
/// addresses of its first report.
#[must_use]
pub fn grouping_of<'a>(key: &'a StackKey, version: Version, rules: &RuleSet) -> KeyGrouping<'a> {
    if let Some(frames) = &key.frames {
        let grouping = signature::group_with(version, &cause_of(key), frames, rules);
        if !grouping.provisional {
            return KeyGrouping { grouping, frames };
        }
    }
    let frames = &key.addresses;
    KeyGrouping {
        grouping: signature::group_with(version, &reported_cause(key), frames, rules),
        frames,
    }
}

/// Returns the group of a key by the version beside. `None`: no other version is computed.
#[must_use]
pub fn next_group(key: &StackKey, policy: &GroupingPolicy) -> Option<NextGroup> {
    let next = policy.next?;
    let found = grouping_of(key, next.version, policy.rules(&key.service));
    Some(NextGroup {
        id: signature::group_id(&key.service, &found.grouping),
        title: found.grouping.title,
        signature: found.grouping.signature,
    })
}

/// Notes the group of a key by the version beside, if there is one.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_next(
    connection: &mut AnyConnection,
    key: &StackKey,
    policy: &GroupingPolicy,
) -> Result<()> {
    match next_group(key, policy) {
        Some(next) => next_groups::set(connection, &key.key, &next).await,
        None => Ok(()),
    }
}
