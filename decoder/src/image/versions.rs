//! Versions of code that changes while it is traced.
//!
//! A recorder notes a boundary in the trace of each thread where the code of a process changes.
//! Tracing is disabled before it and enabled after it. So a boundary never falls into a stretch of
//! flow, and all flow between two boundaries is of one version.
//!
//! Other traces have only the time of a change. Flow whose time is known only from and to may be of
//! several versions. Code that differs between them is unknown there.

use super::Section;
use super::section_map::SectionMap;
use backtrail_pt::{Avma, Tid, Tsc};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

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

/// A change of the code at a time.
#[derive(Clone, Debug)]
pub struct TimedChange {
    /// The time; `None`: unknown.
    pub at: Option<Tsc>,
    /// The new code.
    pub code: NewCode,
}

/// The code after a change.
#[derive(Clone, Debug)]
pub enum NewCode {
    /// Known bytes.
    Known(Section),
    /// Unknown bytes at the addresses from the first to the last.
    Unknown(Avma, Avma),
}

impl NewCode {
    /// Returns the first and the last changed address, if there are any.
    pub(super) fn range(&self) -> Option<(Avma, Avma)> {
        match self {
            Self::Known(section) => section.range(),
            Self::Unknown(first, last) => (first <= last).then_some((*first, *last)),
        }
    }

    /// Puts the new code over the existing one.
    pub(super) fn apply(&self, sections: &mut SectionMap) {
        match self {
            Self::Known(section) => sections.add(section.clone()),
            Self::Unknown(first, last) => sections.remove(*first, *last),
        }
    }
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
    changes: Vec<Update>,
    /// (first address, number of the change), ascending.
    by_start: Vec<(u64, u32)>,
    /// The longest change in bytes.
    longest: u64,
    /// The first and the last changed address.
    hull: Option<(Avma, Avma)>,
    /// By offset.
    boundaries: BTreeMap<Tid, Vec<Boundary>>,
    /// The times at which the versions after the first begin, ascending; `None`: there is no
    /// version by time.
    times: Option<Vec<Option<Tsc>>>,
}

/// A change that starts with a version.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub since: Version,
    pub code: NewCode,
}

impl From<Change> for Update {
    fn from(change: Change) -> Self {
        Self {
            since: change.since,
            code: NewCode::Known(change.section),
        }
    }
}

impl Versions {
    /// Returns versions with boundaries in the traces of threads.
    pub fn new(changes: Vec<Change>, mut boundaries: BTreeMap<Tid, Vec<Boundary>>) -> Self {
        boundaries
            .values_mut()
            .for_each(|list| list.sort_by_key(|boundary| boundary.offset));
        Self::of_updates(changes.into_iter().map(Update::from).collect(), boundaries, None)
    }

    /// Returns versions that begin at times, one for each distinct time. Those of unknown times
    /// come last.
    pub fn by_time(mut changes: Vec<TimedChange>) -> Self {
        changes.sort_by_key(|change| (change.at.is_none(), change.at));
        let mut times: Vec<Option<Tsc>> = Vec::new();
        let mut updates = Vec::with_capacity(changes.len());
        for change in changes {
            if times.last() != Some(&change.at) {
                times.push(change.at);
            }
            updates.push(Update {
                since: Version(u32::try_from(times.len()).unwrap_or(u32::MAX)),
                code: change.code,
            });
        }
        Self::of_updates(updates, BTreeMap::new(), Some(times))
    }

    fn of_updates(
        mut changes: Vec<Update>,
        boundaries: BTreeMap<Tid, Vec<Boundary>>,
        times: Option<Vec<Option<Tsc>>>,
    ) -> Self {
        changes.sort_by_key(|change| change.since);
        let ranges = || {
            (0..)
                .zip(&changes)
                .filter_map(|(at, change)| Some((at, change.code.range()?)))
        };
        let mut by_start: Vec<(u64, u32)> = ranges().map(|(at, (first, _))| (first.0, at)).collect();
        by_start.sort_unstable();
        let longest = ranges()
            .map(|(_, (first, last))| (last - first).saturating_add(1))
            .max();
        let last = ranges().map(|(_, (_, last))| last).max();
        let hull = by_start.first().map(|&(first, _)| Avma(first)).zip(last);
        Self {
            by_start,
            hull,
            longest: longest.unwrap_or(0),
            changes,
            boundaries,
            times,
        }
    }

    /// Returns whether versions begin at times.
    pub fn are_timed(&self) -> bool {
        self.times.is_some()
    }

    /// Returns all versions, if they begin at times.
    pub fn all_timed(&self) -> Option<RangeInclusive<Version>> {
        let last = u32::try_from(self.times.as_ref()?.len()).unwrap_or(u32::MAX);
        Some(Version::default()..=Version(last))
    }

    /// Returns the version that holds from the changes of a time on; `None`: an unknown time. It
    /// is the first one if no version begins at a time.
    pub fn since(&self, at: Option<Tsc>) -> Version {
        let times = self.times.as_deref().unwrap_or_default();
        let begun = match at {
            Some(_) => times.partition_point(|time| time.is_some_and(|time| Some(time) <= at)),
            None => times.len(),
        };
        Version(u32::try_from(begun).unwrap_or(u32::MAX))
    }

    /// Returns the versions that flow between two times may be of.
    pub fn between(&self, after: Option<Tsc>, before: Option<Tsc>) -> RangeInclusive<Version> {
        let times = self.times.as_deref().unwrap_or_default();
        let begun = |at: Option<Tsc>| at.map_or(Version::default(), |at| self.since(Some(at)));
        let all = Version(u32::try_from(times.len()).unwrap_or(u32::MAX));
        // A change at an unknown time may be before any flow.
        let is_known = times.last().is_none_or(Option::is_some);
        let last = before
            .filter(|_| is_known)
            .map_or(all, |before| begun(Some(before)));
        let first = begun(after);
        first..=last.max(first)
    }

    /// Returns the ranges of the changes after a version, up to another.
    pub fn changed(&self, after: Version, up_to: Version) -> Vec<(Avma, Avma)> {
        let changes = self.after(after, up_to).iter();
        changes.filter_map(|change| change.code.range()).collect()
    }

    /// Returns ranges that contain all changes after a version, up to another: one range if there
    /// are many changes.
    pub fn covered(&self, after: Version, up_to: Version) -> Vec<(Avma, Avma)> {
        const MANY: usize = 64;
        match self.hull {
            Some(hull) if self.after(after, up_to).len() > MANY => vec![hull],
            _ => self.changed(after, up_to),
        }
    }

    /// Returns the changes after a version, up to another.
    fn after(&self, after: Version, up_to: Version) -> &[Update] {
        let first = self.changes.partition_point(|change| change.since <= after);
        self.from(first, up_to)
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the boundaries of a thread.
    pub fn boundaries(&self, tid: Tid) -> &[Boundary] {
        self.boundaries.get(&tid).map_or(&[], Vec::as_slice)
    }

    /// Returns the changes of a version, from number `from` on.
    pub fn from(&self, from: usize, version: Version) -> &[Update] {
        let end = self.changes.partition_point(|change| change.since <= version);
        self.changes.get(from..end).unwrap_or(&[])
    }

    /// Returns the changes of a version with an address in `first..=last`, in order. Omits those
    /// below a change that covers the whole range.
    pub fn around(&self, first: Avma, last: Avma, version: Version) -> Vec<&Update> {
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
            let Some((start, end)) = change.code.range().filter(|&(_, end)| end >= first) else {
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
