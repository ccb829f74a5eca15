//! A stack key as pages show it: its grouping, its frames and its place in the source.

use crate::database::rules::GroupingPolicy;
use crate::database::stack_keys::StackKey;
use crate::grouping::signature::Version;
use crate::ingest::key_group::{self, KeyGrouping};
use crate::stack::Frame;

/// Returns the grouping of a key by the rules of now, and by the version of its group.
#[must_use]
pub fn grouping_of<'a>(key: &'a StackKey, version: i64, policy: &GroupingPolicy) -> KeyGrouping<'a> {
    // A group of a newer hub is explained by the version that this one has.
    let version = Version::try_from(version).unwrap_or(policy.version);
    key_group::grouping_of(key, version, policy.rules(&key.service))
}

/// Returns file and line of the frame that ends the signature, or of one before it that has them.
#[must_use]
pub fn place(key: &StackKey, policy: &GroupingPolicy) -> Option<String> {
    let KeyGrouping { grouping, frames } = grouping_of(key, policy.version.number(), policy);
    let kept = grouping.kept().filter_map(|kept| frames.get(kept.frame));
    let places = kept.filter_map(|frame| {
        let file = frame.file.as_deref()?;
        let name = file.rsplit('/').next().unwrap_or(file);
        frame.line.map(|line| format!("{name}:{line}"))
    });
    places.last()
}

/// Returns the frames of a key, with symbols if a bundle gave them.
#[must_use]
pub fn frames(key: &StackKey) -> &[Frame] {
    key.frames.as_deref().unwrap_or(&key.addresses)
}
