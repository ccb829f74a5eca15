//! The code bytes of one process, assembled from sections of files and of memory, and their versions.

mod passing;
mod pieces;
mod versions;

pub(crate) use passing::Passing;
pub use versions::{Boundary, Change, Version};

use backtrail_pt::{Avma, Tid};
use pieces::Pieces;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use versions::Versions;

/// Shared bytes, however they are kept: a mapped file, a vector.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes that were in a process from `start` on.
#[derive(Clone)]
pub struct Section {
    /// Where the first byte was.
    pub start: Avma,
    /// The bytes; what would lie beyond 2^64 is not used.
    pub bytes: Bytes,
}

impl Section {
    /// The first and the last address, when it has any.
    fn range(&self) -> Option<(Avma, Avma)> {
        let reach = ((*self.bytes).as_ref().len() as u64).checked_sub(1)?;
        Some((self.start, Avma(self.start.0.saturating_add(reach))))
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Section {{ {:#x} + {:#x} }}",
            self.start,
            (*self.bytes).as_ref().len()
        )
    }
}

/// What an engine reads code from. It stays the same, but for what happens while a sink takes an event.
pub trait Memory {
    /// Copies bytes from `at` on into `out`, as many as there are without a hole, and says how many.
    fn read(&self, at: Avma, out: &mut [u8]) -> usize;

    /// What is other code since this was asked last. An engine that keeps what it read asks after each
    /// event.
    fn change(&self) -> CodeChange {
        CodeChange::default()
    }

    /// What runs now is of a process of which nothing is known: an engine that can, goes on where it leaves off, and not only
    /// at the next PSB.
    fn is_nobodys(&self) -> bool {
        false
    }
}

/// How code changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeChange {
    /// The process whose code is read now, by any number.
    pub space: u32,
    /// The addresses that have other bytes now, (first, last) inclusive.
    pub ranges: Vec<(Avma, Avma)>,
}

/// The code of one process: sections, of which a later one covers what it overlaps of an earlier, and
/// the changes made to them while the process ran.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pieces: Pieces,
    versions: Versions,
}

impl Image {
    /// An image without code.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a section over what is there from the beginning.
    pub fn add(&mut self, section: Section) {
        self.pieces.add(section);
    }

    /// Says how the code changed, and where each thread comes to see that.
    ///
    /// Of two changes that overlap, the one of the later version covers the other, and of one
    /// version, the later in the list. Those of the first version are put over what is there.
    pub fn set_versions(&mut self, changes: Vec<Change>, boundaries: BTreeMap<Tid, Vec<Boundary>>) {
        let (first, later) = changes
            .into_iter()
            .partition::<Vec<_>, _>(|change| change.since == Version::default());
        first.into_iter().for_each(|change| self.add(change.section));
        self.versions = Versions::new(later, boundaries);
    }

    /// The stretches of addresses that have bytes from the beginning, ascending, as (first, last)
    /// inclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (Avma, Avma)> + '_ {
        self.pieces.ranges()
    }

    /// No byte is in it from the beginning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Copies bytes from `at` on into `out`, as many as there are without a hole, and says how many;
    /// those of the first version.
    pub fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        self.pieces.read(at, out)
    }

    /// As [`Self::read`], the bytes that were there in a version ([`History::version`]).
    ///
    /// [`History::version`]: crate::History::version
    pub fn read_version(&self, version: Version, at: Avma, out: &mut [u8]) -> usize {
        let Some(reach) = (out.len() as u64).checked_sub(1) else {
            return 0;
        };
        let last = Avma(at.0.saturating_add(reach));
        let changes = self.versions.around(at, last, version);
        if changes.is_empty() {
            return self.pieces.read(at, out);
        }
        let mut pieces = self.pieces.around(at, last);
        for change in changes {
            pieces.add(Section::clone(&change.section));
        }
        pieces.read(at, out)
    }
}

impl Memory for Image {
    fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        Image::read(self, at, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(start: u64, bytes: &[u8]) -> Section {
        Section {
            start: Avma(start),
            bytes: Arc::new(bytes.to_vec()),
        }
    }

    fn read(image: &Image, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let got = image.read(Avma(at), &mut out);
        out.truncate(got);
        out
    }

    #[test]
    fn later_sections_cover_earlier_ones() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2, 3, 4, 5, 6]));
        image.add(section(0x1002, &[9, 8]));
        assert_eq!(read(&image, 0x1000, 16), [1, 2, 9, 8, 5, 6]);
        image.add(section(0xfff, &[7, 7]));
        assert_eq!(read(&image, 0xfff, 16), [7, 7, 2, 9, 8, 5, 6]);
        image.add(section(0x0f00, &[0; 0x200]));
        assert_eq!(read(&image, 0x1003, 1), [0]);
    }

    #[test]
    fn a_hole_ends_the_read_and_the_top_of_memory_is_reached() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2]));
        image.add(section(0x1003, &[3]));
        assert_eq!(read(&image, 0x1000, 4), [1, 2]);
        assert_eq!(read(&image, 0x1002, 4), [0u8; 0]);
        image.add(section(u64::MAX - 1, &[5, 6, 7, 8]));
        assert_eq!(read(&image, u64::MAX - 1, 8), [5, 6]);
        image.add(section(5, &[]));
        assert_eq!(read(&image, 5, 1), [0u8; 0]);
    }

    fn change(since: u32, start: u64, bytes: &[u8]) -> Change {
        Change {
            since: Version(since),
            section: section(start, bytes),
        }
    }

    /// Bytes of 0x1000..0x1008 in a version, read from each address on.
    fn seen(image: &Image, version: u32) -> Vec<Vec<u8>> {
        let read = |skip: u64| {
            let mut out = vec![0; 8];
            let got = image.read_version(Version(version), Avma(0x1000 + skip), &mut out);
            out.truncate(got);
            out
        };
        (0..8).map(read).collect()
    }

    #[test]
    fn a_version_has_the_changes_up_to_it() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2, 3, 4]));
        // Version 3 stands first, though it covers the others; version 1 has two that overlap.
        let changes = vec![
            change(3, 0x1001, &[30, 31]),
            change(1, 0x1002, &[10, 11, 12]),
            change(1, 0x1003, &[13]),
            change(0, 0x1007, &[7]),
        ];
        image.set_versions(changes, BTreeMap::new());
        assert_eq!(seen(&image, 0)[0], [1, 2, 3, 4]);
        assert_eq!(seen(&image, 0)[7], [7]);
        for version in [1, 2] {
            assert_eq!(seen(&image, version)[0], [1, 2, 10, 13, 12]);
        }
        assert_eq!(seen(&image, 3)[0], [1, 30, 31, 13, 12]);
        assert_eq!(seen(&image, 9)[2], [31, 13, 12]);
        assert_eq!(seen(&image, 9)[5], [0u8; 0]);
        let mut two = [0; 2];
        assert_eq!(image.read_version(Version(9), Avma(0x1001), &mut two), 2);
        assert_eq!(two, [30, 31]);
    }

    #[test]
    fn passing_through_versions_reads_what_each_has_and_tells_what_changed() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2, 3, 4]));
        let changes = vec![
            change(0, 0x1006, &[6]),
            change(2, 0x1001, &[20, 21]),
            change(3, 0x1002, &[30]),
        ];
        let boundaries = [(10, 1), (20, 2), (20, 3)].map(|(offset, version)| Boundary {
            offset,
            version: Version(version),
        });
        image.set_versions(changes, [(Tid(1), boundaries.to_vec())].into());
        assert!(Passing::new(&image, Tid(2)).is_none());
        let passing = Passing::new(&image, Tid(1)).unwrap();
        let versions = [0, 9, 10, 19, 20, 99].map(|offset| passing.version_at(offset).0);
        assert_eq!(versions, [0, 0, 1, 1, 3, 3]);
        let changed = [0, 1, 2, 3, 3, 1].map(|version| {
            let changed = passing.go_to(Version(version));
            for (skip, expected) in seen(&image, version).into_iter().enumerate() {
                let mut out = vec![0; 8];
                let got = passing.read(Avma(0x1000 + skip as u64), &mut out);
                assert_eq!(out[..got], expected, "version {version}, {skip}");
            }
            changed.map(|list| {
                list.into_iter()
                    .map(|(first, last)| (first.0, last.0))
                    .collect::<Vec<_>>()
            })
        });
        assert_eq!(changed[0], None);
        assert_eq!(changed[1], Some(vec![]));
        assert_eq!(changed[2], Some(vec![(0x1001, 0x1002)]));
        assert_eq!(changed[3], Some(vec![(0x1002, 0x1002)]));
        assert_eq!(changed[4], None);
        assert_eq!(changed[5], Some(vec![(0x1001, 0x1002), (0x1002, 0x1002)]));
    }
}
