//! Moves stack keys to the groups of their symbols.

use super::key_group;
use super::outbox::Outbox;
use super::record::{group_words, new_group};
use super::states::{self, GroupsBefore};
use crate::analysis::{Access, Analysis};
use crate::database::groups;
use crate::database::reports::ReportRow;
use crate::database::rules;
use crate::database::stack_keys::{self, StackKey};
use crate::error::Result;
use crate::grouping::cause::{Access as CauseAccess, CrashCause, CrashFacts};
use crate::grouping::rules::RuleSet;
use crate::grouping::signature::{self, Grouping, Version};
use crate::stack::Frame;
use sqlx::AnyConnection;

/// The symbols and the cause of a stack key, by an analysis.
#[derive(Clone, Debug)]
pub struct Symbolized {
    /// The stack of the crashed thread.
    pub frames: Vec<Frame>,
    /// The cause.
    pub cause: CrashCause,
    /// The build ids of frames without a function.
    pub missing: Vec<String>,
}

impl Symbolized {
    /// Returns what an analysis says of the key of its crash.
    #[must_use]
    pub fn of(analysis: &Analysis) -> Self {
        let frames: Vec<Frame> = analysis
            .crashed
            .frames
            .iter()
            .map(|view| view.frame.clone())
            .collect();
        let access = match analysis.cause.access {
            Some(Access::Read) => Some(CauseAccess::Read),
            Some(Access::Write | Access::ReadWrite) => Some(CauseAccess::Write),
            Some(Access::Execute) => Some(CauseAccess::Execute),
            _ => None,
        };
        let cause = CrashCause::of(&CrashFacts {
            signal: analysis.cause.signal,
            code: analysis.cause.code,
            fault_address: analysis.cause.fault_address,
            stack_pointer: analysis.cause.stack_pointer,
            access,
            message: analysis.cause.message.as_deref(),
            mapped: &[],
        });
        let mut missing: Vec<String> = frames
            .iter()
            .filter(|frame| frame.function.is_none() || frame.line.is_none())
            .filter_map(|frame| frame.build_id.clone())
            .collect();
        missing.sort_unstable();
        missing.dedup();
        Self {
            frames,
            cause,
            missing,
        }
    }

    /// Returns the signature by a version and rules.
    #[must_use]
    pub fn grouping(&self, version: Version, rules: &RuleSet) -> Grouping {
        signature::group_with(version, &self.cause, &self.frames, rules)
    }
}

/// Stores what an analysis says of a key, moves the key to the group of its symbols, and returns
/// that group. Without symbols, the key stays, and its group is announced as it is.
///
/// # Errors
/// Fails if the database fails.
pub async fn regroup(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    key: &StackKey,
    symbolized: &Symbolized,
    report: &ReportRow,
    (now, reason): (i64, &str),
) -> Result<String> {
    let cause = serde_json::to_string(&symbolized.cause).unwrap_or_default();
    stack_keys::set_frames(
        connection,
        &key.key,
        &symbolized.frames,
        &cause,
        &symbolized.missing,
    )
    .await?;
    let policy = rules::policy(connection).await?;
    let known = StackKey {
        frames: Some(symbolized.frames.clone()),
        cause: Some(cause),
        ..key.clone()
    };
    key_group::note_next(connection, &known, &policy).await?;
    let grouping = symbolized.grouping(policy.version, policy.rules(&report.service));
    if grouping.provisional {
        states::announce(connection, outbox, &key.group, Some(report), now).await?;
        return Ok(key.group.clone());
    }
    let old = groups::find(connection, &key.group).await?;
    let seen = old.as_ref().map_or(report.time, |old| old.first_seen);
    let group = new_group(&report.service, key.signal, &grouping, (seen, now), &report.build);
    if group.id == key.group {
        states::announce(connection, outbox, &group.id, Some(report), now).await?;
        return Ok(group.id);
    }
    let words = group_words(&group, &symbolized.frames);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let is_new = groups::insert(connection, &group, &words).await?;
    let target_builds = match is_new {
        true => None,
        false => Some(groups::builds(connection, &group.id).await?),
    };
    stack_keys::move_to(connection, &key.key, &key.group, &group.id, now, reason).await?;
    if let Some(old) = old {
        let moved = stack_keys::builds(connection, &key.key).await?;
        let before = GroupsBefore { old, target_builds };
        states::apply_move(connection, outbox, &before, &group.id, &moved, report, now).await?;
    }
    Ok(group.id)
}
