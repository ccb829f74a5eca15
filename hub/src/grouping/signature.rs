//! Signatures: the frames of a crash that identify its defect.

mod names;
mod walk;

use super::cause::{CauseKind, CrashCause};
use super::explain::{Decision, FrameDecision};
use super::printable::{limited, printable, shortened};
use super::rules::RuleSet;
use crate::stack::Frame;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use walk::Walk;

/// The longest signature, in bytes.
const MAX_SIGNATURE: usize = 255;
/// The longest title, in bytes.
const MAX_TITLE: usize = 160;
/// Separates the parts of a signature.
const SEPARATOR: &str = " | ";
/// The digits of a group's identifier: base 32 without i, l, o and u, as in identifiers of reports.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The number of digits of a group's identifier: 100 bits.
const ID_LENGTH: usize = 20;

/// A version of the grouping rules. Each group keeps the version that made its signature, so that a
/// new version can be computed beside the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
#[non_exhaustive]
pub enum Version {
    /// The first version.
    V1,
    /// A pointer without a meaning has one cause, whether its value is an address or not. A
    /// function that ends the process itself does not end the signature.
    V2,
}

/// The version of the rules is unknown to this hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("grouping version {0} is unknown to this hub: use a newer hub")]
pub struct UnknownVersion(i64);

impl Version {
    /// All versions that this hub computes, oldest first.
    pub const ALL: &[Self] = &[Self::V1, Self::V2];
    /// The version of new hubs.
    pub const LATEST: Self = Self::V2;

    /// Returns the number of the version, as the database has it.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Returns the differences from the version before, as sentences for people.
    #[must_use]
    pub fn differences(self) -> &'static [&'static str] {
        match self {
            Self::V1 => &[],
            Self::V2 => &[
                "A general protection fault is an invalid access, because the value of one wild pointer \
                 decides which of the two happens.",
                "A function that ends the process itself, such as a helper for fatal errors, is kept \
                 with its caller.",
            ],
        }
    }
}

impl TryFrom<i64> for Version {
    type Error = UnknownVersion;

    fn try_from(number: i64) -> Result<Self, UnknownVersion> {
        let mut all = Self::ALL.iter().copied();
        all.find(|version| version.number() == number)
            .ok_or(UnknownVersion(number))
    }
}

impl From<Version> for i64 {
    fn from(version: Version) -> Self {
        version.number()
    }
}

/// The signature of a crash, and the decisions that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grouping {
    /// The version of the rules.
    pub version: Version,
    /// One line for lists: the cause and the function, or the name that a rule gives.
    pub title: String,
    /// The signature: printable, at most 255 bytes. Equal signatures of a service are one group.
    pub signature: String,
    /// The cause, in a few words.
    pub head: String,
    /// Whether the signature has addresses, because no function of the program is known.
    pub provisional: bool,
    /// The decision on each frame, innermost first.
    pub decisions: Vec<FrameDecision>,
}

/// Computes the signature of a crash by the latest version of the rules.
///
/// `frames` is the stack of the crashed thread, innermost frame first.
#[must_use]
pub fn group(cause: &CrashCause, frames: &[Frame], rules: &RuleSet) -> Grouping {
    group_with(Version::LATEST, cause, frames, rules)
}

/// Computes the signature of a crash by one version of the rules.
#[must_use]
pub fn group_with(version: Version, cause: &CrashCause, frames: &[Frame], rules: &RuleSet) -> Grouping {
    let mut walk = Walk::new(frames);
    walk.apply_ignoring(rules);
    let mut cause = cause.clone().with_kind_of_function(walk.implied_kind());
    if version >= Version::V2 && cause.kind == CauseKind::GeneralProtection {
        cause.kind = CauseKind::InvalidAddress;
    }
    let is_overflow = cause.kind == CauseKind::StackOverflow;
    let group_name = walk.apply_group_by(rules);
    let is_cycle = group_name.is_none() && is_overflow && walk.keep_recursion();
    if group_name.is_none() && !is_cycle {
        let keeps_reporter = version >= Version::V2 && cause.is_raised();
        walk.run(cause.is_raised(), keeps_reporter);
    }
    let head = cause.words();
    let outcome = walk.outcome();
    let mut parts = vec![head.clone()];
    parts.extend(outcome.parts);
    let last = outcome.last.as_deref();
    let title = match (group_name.flatten(), last) {
        (Some(name), _) => {
            parts = vec![name.clone()];
            name
        }
        (None, Some(last)) if is_cycle => format!("{head} in recursion of {last}"),
        (None, Some(last)) => format!("{head} in {last}"),
        (None, None) => head.clone(),
    };
    Grouping {
        version,
        title: shortened(&printable(&title), MAX_TITLE),
        signature: limited(&printable(&parts.join(SEPARATOR)), MAX_SIGNATURE),
        head,
        provisional: outcome.is_provisional,
        decisions: outcome.decisions,
    }
}

impl Grouping {
    /// Returns the names of the frames that are part of the signature, innermost first.
    pub fn kept(&self) -> impl Iterator<Item = &FrameDecision> {
        self.decisions
            .iter()
            .filter(|frame| Decision::is_kept(&frame.decision))
    }
}

/// Returns the identifier of the group of a service: 20 digits of base 32.
#[must_use]
pub fn group_id(service: &str, grouping: &Grouping) -> String {
    let mut digest = Sha256::new();
    digest.update(grouping.version.number().to_le_bytes());
    // Lengths keep the fields apart.
    for field in [service, &grouping.signature] {
        digest.update((field.len() as u64).to_le_bytes());
        digest.update(field);
    }
    let bytes = digest.finalize();
    bytes
        .iter()
        .take(ID_LENGTH)
        .map(|byte| char::from(DIGITS[usize::from(byte % 32)]))
        .collect()
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
