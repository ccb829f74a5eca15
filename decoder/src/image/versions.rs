//! Versions of code that changes while it is traced.
//!
//! Where the code of a process changes, the trace of each of its threads has a boundary. Tracing is
//! disabled before it and enabled after it. So a boundary never falls into a stretch of flow, and
//! all flow between two boundaries is of one version.

use super::Section;
use backtrail_pt::{Avma, Tid};
use std::collections::BTreeMap;

/// A state of a process's code: the number of the last boundary passed. The first state is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

/// Code that is new in a version.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version in which it appears.
    pub since: Version,
    /// The code.
    pub section: Section,
}

/// The start of a version in a thread's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Flow that starts at or after this offset of the thread's trace has the version, up to the
    /// next boundary.
    pub offset: u64,
    /// The version.
    pub version: Version,
}

/// The changes of a process's code.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    /// By version, without the first; within a version, later ones cover earlier ones.
    changes: Vec<Change>,
    /// (first address, number of the change), ascending.
    by_start: Vec<(u64, u32)>,
    /// The longest change in bytes.
    longest: u64,
    /// By offset.
    boundaries: BTreeMap<Tid, Vec<Boundary>>,
}

impl Versions {
    pub fn new(mut changes: Vec<Change>, mut boundaries: BTreeMap<Tid, Vec<Boundary>>) -> Self {
        changes.sort_by_key(|change| change.since);
        boundaries
            .values_mut()
            .for_each(|list| list.sort_by_key(|boundary| boundary.offset));
        let ranges = || {
            (0..)
                .zip(&changes)
                .filter_map(|(at, change)| Some((at, change.section.range()?)))
        };
        let mut by_start: Vec<(u64, u32)> = ranges().map(|(at, (first, _))| (first.0, at)).collect();
        by_start.sort_unstable();
        let longest = ranges().map(|(_, (first, last))| last - first + 1).max();
        Self {
            by_start,
            longest: longest.unwrap_or(0),
            changes,
            boundaries,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the boundaries of a thread.
    pub fn boundaries(&self, tid: Tid) -> &[Boundary] {
        self.boundaries.get(&tid).map_or(&[], Vec::as_slice)
    }

    /// Returns the changes of a version, from number `from` on.
    pub fn from(&self, from: usize, version: Version) -> &[Change] {
        let end = self.changes.partition_point(|change| change.since <= version);
        self.changes.get(from..end).unwrap_or(&[])
    }

    /// Returns the changes of a version with an address in `first..=last`, in order. Omits those
    /// below a change that covers the whole range.
    pub fn around(&self, first: Avma, last: Avma, version: Version) -> Vec<&Change> {
        let lowest = (first.0).saturating_sub(self.longest);
        let begin = self.by_start.partition_point(|&(start, _)| start < lowest);
        let end = self.by_start.partition_point(|&(start, _)| start <= last.0);
        let near = self.by_start.get(begin..end).unwrap_or(&[]);
        let mut numbers: Vec<u32> = near.iter().map(|&(_, number)| number).collect();
        numbers.sort_unstable();
        let mut found = Vec::new();
        for number in numbers.into_iter().rev() {
            let change = self.changes.get(number as usize);
            let Some(change) = change.filter(|change| change.since <= version) else {
                continue;
            };
            let Some((start, end)) = change.section.range().filter(|&(_, end)| end >= first) else {
                continue;
            };
            found.push(change);
            if start <= first && end >= last {
                break;
            }
        }
        found.reverse();
        found
    }
}
