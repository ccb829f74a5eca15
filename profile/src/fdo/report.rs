//! Loops with their numbers of iterations, and branches that were mispredicted.

use super::binary::Binary;
use super::branch_profile::{Branch, BranchProfile, CodeRange};
use super::disjoint::disjoint;
use backtrail_pt::Svma;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A place in the code, with its line if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// The address.
    pub address: Svma,
    /// The linkage name of the innermost function. Empty: unknown.
    pub function: Arc<str>,
    /// The line. 0: unknown.
    pub line: u32,
}

/// A loop: code that a branch backward repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The first instruction.
    pub head: CodePlace,
    /// How often the head ran.
    pub iterations: u64,
    /// How often the loop was entered: by other branches, or from the code before it. If all
    /// entries go to the condition at its end, how often that condition ended it.
    pub entries: u64,
}

impl Loop {
    /// Returns the mean number of iterations of an entry. `None`: no entry was seen.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.entries > 0).then(|| self.iterations as f64 / self.entries as f64)
    }
}

/// A branch that was mispredicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MispredictedBranch {
    /// The branch instruction.
    pub from: CodePlace,
    /// How often it was taken.
    pub taken: u64,
    /// How often that was mispredicted.
    pub mispredicted: u64,
}

/// The branches backward to one head.
#[derive(Clone, Copy, Debug, Default)]
struct Repeats {
    /// How often they were taken.
    taken: u64,
    /// How often one of them was not taken, the fewest of all.
    ended: Option<u64>,
}

/// The loops and mispredicted branches of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchReport {
    /// The loops, those with most iterations first.
    pub loops: Vec<Loop>,
    /// The branches, those with most mispredictions first. Empty also if the source does not say.
    pub mispredicted: Vec<MispredictedBranch>,
}

impl BranchReport {
    /// Returns the report of a profile.
    ///
    /// A branch backward within a function repeats a loop. The numbers are exact for a trace. For
    /// samples they are in proportion.
    #[must_use]
    pub fn new(branches: &BranchProfile, binary: &impl Binary) -> Self {
        let executed = disjoint(branches.ranges());
        let mut repeats: BTreeMap<Svma, Repeats> = BTreeMap::new();
        let mut misses: BTreeMap<Svma, (u64, u64)> = BTreeMap::new();
        for (branch, count) in branches.branches() {
            let Branch {
                from: Some(from), to, ..
            } = branch
            else {
                continue;
            };
            let sums = misses.entry(from).or_default();
            sums.0 = sums.0.saturating_add(count.taken);
            sums.1 = sums.1.saturating_add(count.mispredicted);
            let Some(to) = to.filter(|to| *to <= from) else {
                continue;
            };
            // A call of an earlier function or of the function itself is no loop.
            let is_inside = binary.entry(to).is_none()
                && binary
                    .function_ranges(from)
                    .iter()
                    .any(|range| range.contains(&to));
            if is_inside {
                let found = repeats.entry(to).or_default();
                found.taken = found.taken.saturating_add(count.taken);
                let ended = executions(&executed, from).saturating_sub(count.taken);
                found.ended = Some(found.ended.map_or(ended, |fewest| fewest.min(ended)));
            }
        }
        let mut loops: Vec<Loop> = repeats
            .into_iter()
            .map(|(head, repeats)| {
                let iterations = executions(&executed, head).max(repeats.taken);
                let entries = match iterations - repeats.taken {
                    0 => repeats.ended.unwrap_or(0),
                    entries => entries,
                };
                Loop {
                    head: place(head, binary),
                    iterations,
                    entries,
                }
            })
            .collect();
        loops.sort_by_key(|found| (std::cmp::Reverse(found.iterations), found.head.address));
        let missed = misses.into_iter().filter(|(_, (_, missed))| *missed > 0);
        let mut mispredicted: Vec<MispredictedBranch> = missed
            .map(|(from, (taken, mispredicted))| MispredictedBranch {
                from: place(from, binary),
                taken,
                mispredicted,
            })
            .collect();
        mispredicted.sort_by_key(|branch| (std::cmp::Reverse(branch.mispredicted), branch.from.address));
        Self { loops, mispredicted }
    }
}

/// Returns how often an address ran.
fn executions(executed: &[(CodeRange, u64)], at: Svma) -> u64 {
    let next = executed.partition_point(|(range, _)| range.first <= at);
    let found = next.checked_sub(1).and_then(|index| executed.get(index));
    found
        .filter(|(range, _)| at <= range.last)
        .map_or(0, |(_, count)| *count)
}

fn place(address: Svma, binary: &impl Binary) -> CodePlace {
    let frames = binary.source_frames(address);
    let innermost = frames.last();
    CodePlace {
        address,
        function: innermost.map_or_else(|| "".into(), |frame| frame.function.clone()),
        line: innermost.map_or(0, |frame| frame.line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdo::{LinkedFunction, SourceFrame, Transfer};
    use std::ops::Range;

    /// One function from 0x100 to 0x200, with a line for every 0x10 bytes.
    struct Example;

    impl Binary for Example {
        fn instruction(&self, at: Svma) -> Option<(Svma, u8)> {
            Some((at, 1))
        }

        fn is_interrupted(&self, _: CodeRange) -> bool {
            false
        }

        fn source_frames(&self, at: Svma) -> Vec<SourceFrame> {
            vec![SourceFrame {
                function: "work".into(),
                line: (at.0 / 0x10) as u32,
                declared_line: 1,
                discriminator: 0,
            }]
        }

        fn function_ranges(&self, _: Svma) -> Vec<Range<Svma>> {
            vec![Svma(0x100)..Svma(0x200)]
        }

        fn entry(&self, at: Svma) -> Option<Arc<str>> {
            (at.0 == 0x100).then(|| "work".into())
        }

        fn transfer(&self, _: Svma) -> Option<Transfer> {
            Some(Transfer::None)
        }

        fn instruction_before(&self, at: Svma) -> Option<Svma> {
            Some(Svma(at.0 - 1))
        }

        fn linked_function(&self, _: Svma) -> Option<LinkedFunction> {
            None
        }
    }

    #[test]
    fn loops_have_iterations_and_entries() {
        let branch = |from, to| {
            let branch = Branch {
                from: Some(Svma(from)),
                to: Some(Svma(to)),
            };
            (branch, from == 0x150)
        };
        let mut profile = BranchProfile::default();
        // Twice: a call, a loop at 0x120 of four iterations, and the end.
        let history = [
            branch(0x1f0, 0x100),
            branch(0x150, 0x120),
            branch(0x150, 0x120),
            branch(0x150, 0x120),
            branch(0x160, 0x1e0),
            branch(0x1f0, 0x100),
        ];
        profile.add_history(history, 2);
        let report = BranchReport::new(&profile, &Example);
        let [found] = &report.loops[..] else {
            unreachable!("{report:?}")
        };
        assert_eq!((found.head.address, found.head.line), (Svma(0x120), 0x12));
        assert_eq!((found.iterations, found.entries, found.mean()), (8, 2, Some(4.0)));
        let [missed] = &report.mispredicted[..] else {
            unreachable!("{report:?}")
        };
        assert_eq!(
            (missed.from.address, missed.taken, missed.mispredicted),
            (Svma(0x150), 6, 6)
        );
    }
}
