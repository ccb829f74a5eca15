//! A stack key as pages show it: its frames, its cause and its place in the source.

use crate::database::stack_keys::StackKey;
use crate::grouping::cause::{CrashCause, CrashFacts};
use crate::grouping::rules::RuleSet;
use crate::grouping::signature;
use crate::stack::Frame;

/// Returns file and line of the innermost frame that has them and is a part of the signature.
#[must_use]
pub fn place(key: &StackKey) -> Option<String> {
    let grouping = signature::group(&cause(key), frames(key), &RuleSet::default());
    let kept = grouping.kept().filter_map(|kept| frames(key).get(kept.frame));
    let mut places = kept.filter_map(|frame| {
        let file = frame.file.as_deref()?;
        let name = file.rsplit('/').next().unwrap_or(file);
        frame.line.map(|line| format!("{name}:{line}"))
    });
    places.next()
}

/// Returns the frames of a key, with symbols if a bundle gave them.
#[must_use]
pub fn frames(key: &StackKey) -> &[Frame] {
    key.frames.as_deref().unwrap_or(&key.addresses)
}

/// Returns the cause as the last analysis found it.
#[must_use]
pub fn cause(key: &StackKey) -> CrashCause {
    let stored = key
        .cause
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    stored.unwrap_or_else(|| {
        CrashCause::of(&CrashFacts {
            signal: i32::try_from(key.signal).unwrap_or_default(),
            ..CrashFacts::default()
        })
    })
}
