//! Which counts of a profile are hot and cold.
//!
//! Source: LLVM, `llvm/lib/ProfileData/ProfileSummaryBuilder.cpp`.

use super::tree::ContextTree;
use std::collections::BTreeMap;

/// The counts above which lines have parts of all executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// The smallest count of the lines that have 10 % of all executions.
    pub(super) hottest: u64,
    /// The smallest count of the lines that have 99 %.
    pub(super) hot: u64,
    /// The smallest count of the lines that have 99.9999 %.
    pub(super) cold: u64,
}

/// The parts, in millionths.
const HOTTEST: u64 = 100_000;
const HOT: u64 = 990_000;
const COLD: u64 = 999_999;

impl Summary {
    /// Returns the summary of a profile, with the contexts of each function merged.
    pub(super) fn new(tree: &ContextTree) -> Self {
        let mut lines: BTreeMap<u64, u64> = BTreeMap::new();
        for samples in tree.without_contexts().values() {
            for count in samples.counts() {
                *lines.entry(count).or_default() += 1;
            }
        }
        let total: u128 = lines
            .iter()
            .map(|(count, lines)| u128::from(*count) * u128::from(*lines))
            .sum();
        let smallest = |part: u64| {
            let wanted = total * u128::from(part) / 1_000_000;
            let mut sum = 0_u128;
            let mut smallest = 0;
            for (count, lines) in lines.iter().rev() {
                if sum >= wanted {
                    break;
                }
                smallest = *count;
                sum += u128::from(*count) * u128::from(*lines);
            }
            smallest
        };
        Self {
            hottest: smallest(HOTTEST),
            hot: smallest(HOT),
            cold: smallest(COLD),
        }
    }
}
