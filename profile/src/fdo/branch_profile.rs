//! Counts of branches and of straight code.

use backtrail_pt::Svma;
use std::collections::BTreeMap;

/// A branch from an instruction to its target. An end that is in no code of the binary is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Branch {
    /// The branch instruction.
    pub from: Option<Svma>,
    /// The target.
    pub to: Option<Svma>,
}

/// How often a branch was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchCount {
    /// All executions.
    pub taken: u64,
    /// Those that the processor mispredicted. 0 also if the source does not say.
    pub mispredicted: u64,
}

/// Code that ran without a taken branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeRange {
    /// The first instruction.
    pub first: Svma,
    /// The last instruction, mostly a branch.
    pub last: Svma,
}

/// Branches and straight code of one binary, with their counts.
///
/// ```
/// use backtrail_profile::fdo::{Branch, BranchProfile};
/// use backtrail_pt::Svma;
///
/// let branch = |from, to| (Branch { from: Some(Svma(from)), to: Some(Svma(to)) }, false);
/// let mut profile = BranchProfile::default();
/// // A loop from 0x10 to 0x40, twice.
/// profile.add_history([branch(0x40, 0x10), branch(0x40, 0x10)], 1);
/// let (range, count) = profile.ranges().next().unwrap();
/// assert_eq!((range.first, range.last, count), (Svma(0x10), Svma(0x40), 1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct BranchProfile {
    branches: BTreeMap<Branch, BranchCount>,
    ranges: BTreeMap<CodeRange, u64>,
    refused_ranges: u64,
}

/// The most bytes of straight code. A longer range is a sign of lost branches.
const MAX_RANGE: u64 = 1 << 20;

impl BranchProfile {
    /// Adds consecutive branches, the oldest first, each with whether it was mispredicted, which
    /// happened `count` times. The code between two of them ran as often.
    pub fn add_history(&mut self, branches: impl IntoIterator<Item = (Branch, bool)>, count: u64) {
        let mut target: Option<Svma> = None;
        for (branch, is_mispredicted) in branches {
            let mispredicted = if is_mispredicted { count } else { 0 };
            self.add_branch(branch, count, mispredicted);
            if let Some((first, last)) = target.zip(branch.from) {
                self.add_range(CodeRange { first, last }, count);
            }
            target = branch.to;
        }
    }

    /// Adds executions of one branch.
    pub fn add_branch(&mut self, branch: Branch, taken: u64, mispredicted: u64) {
        if branch.from.is_none() && branch.to.is_none() {
            return;
        }
        let sum = self.branches.entry(branch).or_default();
        sum.taken = sum.taken.saturating_add(taken);
        sum.mispredicted = sum.mispredicted.saturating_add(mispredicted);
    }

    /// Adds executions of straight code. A range that ends before it starts, or is longer than 1
    /// MiB, is counted as refused: branches between its ends are missing.
    pub fn add_range(&mut self, range: CodeRange, count: u64) {
        let length = range.last.0.checked_sub(range.first.0);
        if length.is_none_or(|length| length > MAX_RANGE) {
            self.refused_ranges = self.refused_ranges.saturating_add(count);
            return;
        }
        let sum = self.ranges.entry(range).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds another profile of the same binary.
    pub fn merge(&mut self, other: &Self) {
        for (branch, count) in other.branches() {
            self.add_branch(branch, count.taken, count.mispredicted);
        }
        for (range, count) in other.ranges() {
            self.add_range(range, count);
        }
        self.refused_ranges = self.refused_ranges.saturating_add(other.refused_ranges);
    }

    /// Returns whether there is no branch and no code.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty() && self.ranges.is_empty()
    }

    /// Returns the branches in the order of their addresses.
    pub fn branches(&self) -> impl Iterator<Item = (Branch, BranchCount)> {
        self.branches.iter().map(|(branch, count)| (*branch, *count))
    }

    /// Returns the ranges of straight code in the order of their addresses.
    pub fn ranges(&self) -> impl Iterator<Item = (CodeRange, u64)> {
        self.ranges.iter().map(|(range, count)| (*range, *count))
    }

    /// Returns the number of executions of ranges that were refused.
    #[must_use]
    pub fn refused_ranges(&self) -> u64 {
        self.refused_ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(from: u64, to: u64) -> Branch {
        let known = |at| (at != 0).then_some(Svma(at));
        Branch {
            from: known(from),
            to: known(to),
        }
    }

    #[test]
    fn code_between_branches_is_counted() {
        let mut profile = BranchProfile::default();
        let history = [(0x40, 0x10), (0x20, 0x80), (0x90, 0), (0, 0x14), (0x20, 0x80)];
        let history = history.map(|(from, to)| (branch(from, to), from == 0x40));
        profile.add_history(history, 3);
        profile.add_history(history, 1);
        let ranges: Vec<_> = profile
            .ranges()
            .map(|(range, count)| (range.first.0, range.last.0, count))
            .collect();
        assert_eq!(ranges, [(0x10, 0x20, 4), (0x14, 0x20, 4), (0x80, 0x90, 4)]);
        let counts: Vec<_> = profile
            .branches()
            .map(|(_, count)| (count.taken, count.mispredicted))
            .collect();
        assert_eq!(counts, [(4, 0), (8, 0), (4, 4), (4, 0)]);
    }

    #[test]
    fn ranges_without_order_are_refused() {
        let mut profile = BranchProfile::default();
        profile.add_history([(branch(0x40, 0x50), false), (branch(0x20, 0x10), false)], 2);
        assert_eq!(profile.ranges().count(), 0);
        assert_eq!(profile.refused_ranges(), 2);
    }
}
