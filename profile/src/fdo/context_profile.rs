//! Branches and straight code by the calls that led to them.

use super::branch_profile::BranchProfile;
use backtrail_pt::Svma;
use std::collections::BTreeMap;

/// Branches and straight code of one binary, separately for each context: the addresses of the
/// calls that led to them, the outermost first. A context begins after code of another binary.
#[derive(Clone, Debug, Default)]
pub struct ContextProfile {
    contexts: BTreeMap<Vec<Svma>, BranchProfile>,
}

impl ContextProfile {
    /// Returns the counts of a context.
    pub fn context(&mut self, calls: &[Svma]) -> &mut BranchProfile {
        // `entry` needs an owned key, and most contexts are known.
        if !self.contexts.contains_key(calls) {
            self.contexts.insert(calls.to_vec(), BranchProfile::default());
        }
        self.contexts.entry(calls.to_vec()).or_default()
    }

    /// Adds another profile of the same binary.
    pub fn merge(&mut self, other: &Self) {
        for (calls, counts) in &other.contexts {
            self.context(calls).merge(counts);
        }
    }

    /// Returns the contexts in the order of their addresses.
    pub fn contexts(&self) -> impl Iterator<Item = (&[Svma], &BranchProfile)> {
        self.contexts.iter().map(|(calls, counts)| (&calls[..], counts))
    }

    /// Returns whether there is no branch and no code.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contexts.values().all(BranchProfile::is_empty)
    }

    /// Returns whether a context has a call.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.contexts.keys().any(|calls| !calls.is_empty())
    }

    /// Returns the counts of all contexts together.
    #[must_use]
    pub fn without_contexts(&self) -> BranchProfile {
        let mut sum = BranchProfile::default();
        self.contexts.values().for_each(|counts| sum.merge(counts));
        sum
    }
}
