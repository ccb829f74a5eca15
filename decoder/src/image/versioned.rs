//! The code of a process during the decode of one thread's trace.

use super::{Boundary, CodeChange, Image, Memory, Section, SectionMap, Version};
use backtrail_pt::{Avma, Tid};
use std::cell::RefCell;

/// An image that follows a thread from version to version.
pub(crate) struct VersionedImage<'a> {
    image: &'a Image,
    boundaries: &'a [Boundary],
    now: RefCell<CurrentVersion>,
}

/// The code of the current version.
struct CurrentVersion {
    version: Version,
    sections: SectionMap,
    /// The number of changes applied.
    changes: usize,
    /// The changed ranges not yet reported to the engine.
    pending: Vec<(Avma, Avma)>,
}

impl CurrentVersion {
    fn first(image: &Image) -> Self {
        Self {
            version: Version::default(),
            sections: image.sections.clone(),
            changes: 0,
            pending: Vec::new(),
        }
    }
}

impl<'a> VersionedImage<'a> {
    /// Returns the code of `image` as the thread `tid` sees it; `None` if it never changes for the
    /// thread.
    pub fn new(image: &'a Image, tid: Tid) -> Option<Self> {
        Self::is_needed(image, tid).then(|| Self {
            image,
            boundaries: image.versions.boundaries(tid),
            now: RefCell::new(CurrentVersion::first(image)),
        })
    }

    /// Returns whether the code of `image` changes for the thread `tid`.
    pub fn is_needed(image: &Image, tid: Tid) -> bool {
        !image.versions.boundaries(tid).is_empty() && !image.versions.is_empty()
    }

    /// Returns the version of flow that starts at this offset of the thread's trace.
    pub fn version_at(&self, offset: u64) -> Version {
        let passed = self
            .boundaries
            .partition_point(|boundary| boundary.offset <= offset);
        let last = passed.checked_sub(1).and_then(|last| self.boundaries.get(last));
        last.map_or(Version::default(), |boundary| boundary.version)
    }

    /// Switches to a version. Returns the changed (first, last) inclusive ranges; `None` if it is
    /// the current one.
    pub fn go_to(&self, version: Version) -> Option<Vec<(Avma, Avma)>> {
        let mut now = self.now.borrow_mut();
        if version == now.version {
            return None;
        }
        let versions = &self.image.versions;
        let mut changed = Vec::new();
        if version < now.version {
            // Versions should only ascend. If not, all changes so far count as changed again.
            let undone = versions.from(0, now.version);
            changed.extend(undone.iter().filter_map(|change| change.section.range()));
            *now = CurrentVersion::first(self.image);
        }
        let new = versions.from(now.changes, version);
        for change in new {
            changed.extend(change.section.range());
            now.sections.add(Section::clone(&change.section));
        }
        now.changes += new.len();
        now.version = version;
        now.pending.extend_from_slice(&changed);
        Some(changed)
    }
}

impl Memory for VersionedImage<'_> {
    fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        self.now.borrow().sections.read(at, out)
    }

    fn change(&self) -> CodeChange {
        CodeChange {
            space: 0,
            ranges: std::mem::take(&mut self.now.borrow_mut().pending),
        }
    }
}
