//! The code of a process during the decode of a trace.

use super::{Boundary, CodeChange, Image, Memory, SectionMap, Version};
use backtrail_pt::{Avma, Tid, Tsc};
use std::cell::RefCell;
use std::ops::RangeInclusive;

/// An image that follows a thread or a processor from version to version.
pub(crate) struct VersionedImage<'a> {
    image: &'a Image,
    boundaries: &'a [Boundary],
    now: RefCell<CurrentVersion>,
}

/// The code of the current version.
struct CurrentVersion {
    /// The possible versions.
    versions: RangeInclusive<Version>,
    /// The code of the first of them; `None`: the image's first version.
    sections: Option<SectionMap>,
    /// The number of changes applied.
    changes: usize,
    /// The ranges in which the possible versions differ, sorted and merged.
    uncertain: Vec<(Avma, Avma)>,
    /// The changed ranges not yet reported to the engine.
    pending: Vec<(Avma, Avma)>,
    /// The steps that switches between versions took.
    steps: usize,
}

impl CurrentVersion {
    fn first() -> Self {
        Self {
            versions: Version::default()..=Version::default(),
            sections: None,
            changes: 0,
            uncertain: Vec::new(),
            pending: Vec::new(),
            steps: 0,
        }
    }

    /// Returns the first uncertain range that ends at an address or later.
    fn uncertain_from(&self, at: Avma) -> Option<(Avma, Avma)> {
        let next = self.uncertain.partition_point(|(_, last)| *last < at);
        self.uncertain.get(next).copied()
    }
}

impl<'a> VersionedImage<'a> {
    /// The most steps for code that changes at known times. Beyond it, code that ever changes is
    /// unknown: a trace whose times go back and forth could take very long.
    const MAX_STEPS: usize = 1 << 21;
    /// The steps of a switch, besides one for each changed range.
    const SWITCH_STEPS: usize = 16;

    /// Returns the code of `image` as the thread `tid` sees it; `None` if it never changes for the
    /// thread.
    pub fn new(image: &'a Image, tid: Tid) -> Option<Self> {
        Self::is_needed(image, tid).then(|| Self {
            image,
            boundaries: image.versions.boundaries(tid),
            now: RefCell::new(CurrentVersion::first()),
        })
    }

    /// Returns the code of `image` by time; `None` if it does not change at known times.
    pub fn timed(image: &'a Image) -> Option<Self> {
        image.has_timed_versions().then(|| Self {
            image,
            boundaries: &[],
            now: RefCell::new(CurrentVersion::first()),
        })
    }

    /// Returns whether the code of `image` changes for the thread `tid`.
    pub fn is_needed(image: &Image, tid: Tid) -> bool {
        let has_boundaries = !image.versions.boundaries(tid).is_empty() && !image.versions.is_empty();
        has_boundaries || image.has_timed_versions()
    }

    /// Returns whether versions begin at times.
    pub fn is_timed(&self) -> bool {
        self.image.has_timed_versions()
    }

    /// Returns the version of flow that starts at this offset of the thread's trace.
    pub fn version_at(&self, offset: u64) -> Version {
        let passed = self
            .boundaries
            .partition_point(|boundary| boundary.offset <= offset);
        let last = passed.checked_sub(1).and_then(|last| self.boundaries.get(last));
        last.map_or(Version::default(), |boundary| boundary.version)
    }

    /// Returns the versions that flow between two times may be of.
    pub fn versions_between(&self, after: Option<Tsc>, before: Option<Tsc>) -> RangeInclusive<Version> {
        self.image.versions.between(after, before)
    }

    /// Switches to a version, or to code that is the same in several. Returns the changed (first,
    /// last) inclusive ranges; `None` if nothing changes.
    pub fn go_to(&self, wanted: RangeInclusive<Version>) -> Option<Vec<(Avma, Avma)>> {
        let mut now = self.now.borrow_mut();
        let now = &mut *now;
        let versions = &self.image.versions;
        let wanted = match versions.all_timed() {
            Some(all) if now.steps > Self::MAX_STEPS => all,
            _ => wanted,
        };
        if wanted == now.versions {
            return None;
        }
        // Ranges that become certain change, too.
        let mut changed = std::mem::take(&mut now.uncertain);
        if wanted.start() < now.versions.start() {
            // Versions should only ascend. If not, all changes so far count as changed again.
            let undone = versions.from(0, *now.versions.start());
            changed.extend(undone.iter().filter_map(|change| change.code.range()));
            (now.sections, now.changes) = (None, 0);
        }
        let new = versions.from(now.changes, *wanted.start());
        if !new.is_empty() {
            let sections = now.sections.get_or_insert_with(|| {
                now.steps += self.image.sections.len();
                self.image.sections.clone()
            });
            for change in new {
                changed.extend(change.code.range());
                change.code.apply(sections);
            }
        }
        now.changes += new.len();
        let uncertain = versions.changed(*wanted.start(), *wanted.end());
        changed.extend_from_slice(&uncertain);
        now.uncertain = merged(uncertain);
        now.versions = wanted;
        now.steps += Self::SWITCH_STEPS + changed.len();
        now.pending.extend_from_slice(&changed);
        Some(changed)
    }

    /// Returns the version of the current code, the first one if several are possible.
    pub fn version(&self) -> Version {
        *self.now.borrow().versions.start()
    }

    /// Returns whether the possible versions differ at an address.
    pub fn is_uncertain(&self, at: Avma) -> bool {
        let found = self.now.borrow().uncertain_from(at);
        found.is_some_and(|(first, _)| first <= at)
    }
}

/// Returns (first, last) inclusive ranges sorted, with overlapping ones merged.
fn merged(mut ranges: Vec<(Avma, Avma)>) -> Vec<(Avma, Avma)> {
    ranges.sort_unstable();
    let mut found: Vec<(Avma, Avma)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match found.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => found.push((first, last)),
        }
    }
    found
}

impl Memory for VersionedImage<'_> {
    fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        let now = self.now.borrow();
        let known = match now.uncertain_from(at) {
            Some((first, _)) => usize::try_from(first.0.saturating_sub(at.0)).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let len = out.len().min(known);
        let sections = now.sections.as_ref().unwrap_or(&self.image.sections);
        sections.read(at, out.get_mut(..len).unwrap_or_default())
    }

    fn change(&self) -> CodeChange {
        CodeChange {
            space: 0,
            ranges: std::mem::take(&mut self.now.borrow_mut().pending),
        }
    }

    fn depends_on_time(&self) -> bool {
        self.is_timed()
    }
}
