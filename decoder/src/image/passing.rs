//! The code of a process while one thread's trace is decoded.

use super::{Boundary, CodeChange, Image, Memory, Pieces, Section, Version};
use backtrail_pt::{Avma, Tid};
use std::cell::RefCell;

/// Code that goes from version to version with a thread.
pub(crate) struct Passing<'a> {
    image: &'a Image,
    boundaries: &'a [Boundary],
    now: RefCell<Now>,
}

/// The code of one version.
struct Now {
    version: Version,
    pieces: Pieces,
    /// How many changes are in it.
    changes: usize,
    /// The addresses changed since an engine asked.
    untold: Vec<(Avma, Avma)>,
}

impl Now {
    fn first(image: &Image) -> Self {
        Self {
            version: Version::default(),
            pieces: image.pieces.clone(),
            changes: 0,
            untold: Vec::new(),
        }
    }
}

impl<'a> Passing<'a> {
    /// The code of `image` as the thread `tid` comes to see it; `None` when it never changes for it.
    pub fn new(image: &'a Image, tid: Tid) -> Option<Self> {
        Self::is_needed(image, tid).then(|| Self {
            image,
            boundaries: image.versions.boundaries(tid),
            now: RefCell::new(Now::first(image)),
        })
    }

    /// The code of `image` changes for the thread `tid`.
    pub fn is_needed(image: &Image, tid: Tid) -> bool {
        !image.versions.boundaries(tid).is_empty() && !image.versions.is_empty()
    }

    /// The version of a flow that begins at this offset of the thread's trace.
    pub fn version_at(&self, offset: u64) -> Version {
        let passed = self
            .boundaries
            .partition_point(|boundary| boundary.offset <= offset);
        let last = passed.checked_sub(1).and_then(|last| self.boundaries.get(last));
        last.map_or(Version::default(), |boundary| boundary.version)
    }

    /// Goes to a version, and gives the addresses that have other bytes now, as (first, last)
    /// inclusive; `None` when it is the one that was.
    pub fn go_to(&self, version: Version) -> Option<Vec<(Avma, Avma)>> {
        let mut now = self.now.borrow_mut();
        if version == now.version {
            return None;
        }
        let versions = &self.image.versions;
        let mut changed = Vec::new();
        if version < now.version {
            // A trace has no way back; if it is said to, all is taken for changed that ever was.
            let undone = versions.from(0, now.version);
            changed.extend(undone.iter().filter_map(|change| change.section.range()));
            *now = Now::first(self.image);
        }
        let new = versions.from(now.changes, version);
        for change in new {
            changed.extend(change.section.range());
            now.pieces.add(Section::clone(&change.section));
        }
        now.changes += new.len();
        now.version = version;
        now.untold.extend_from_slice(&changed);
        Some(changed)
    }
}

impl Memory for Passing<'_> {
    fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        self.now.borrow().pieces.read(at, out)
    }

    fn change(&self) -> CodeChange {
        CodeChange {
            space: 0,
            ranges: std::mem::take(&mut self.now.borrow_mut().untold),
        }
    }
}
