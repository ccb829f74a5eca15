//! The code of one process, assembled from sections of files and memory, and its versions.

mod section_map;
mod versioned;
mod versions;

pub(crate) use versioned::VersionedImage;
pub use versions::{Boundary, Change, Version};

use backtrail_pt::{Avma, Tid};
use section_map::SectionMap;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use versions::Versions;

/// Shared bytes of any kind: a mapped file, a vector.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes at an address of a process.
#[derive(Clone)]
pub struct Section {
    /// The address of the first byte.
    pub start: Avma,
    /// The bytes; those beyond 2^64 are ignored.
    pub bytes: Bytes,
}

impl Section {
    /// Returns the first and the last address, if there are any.
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

/// The memory that an engine reads code from. It changes only while a sink handles an event.
pub trait Memory {
    /// Copies bytes from `at` on into `out`, up to the first hole, and returns how many.
    fn read(&self, at: Avma, out: &mut [u8]) -> usize;

    /// Returns the changes of the code since the last call. An engine that caches code calls it
    /// after each event.
    fn change(&self) -> CodeChange {
        CodeChange::default()
    }

    /// Returns whether the code that runs now belongs to a process that is not known. There an
    /// engine resumes only where tracing is enabled again.
    fn has_unknown_processes(&self) -> bool {
        false
    }
}

/// A change of the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeChange {
    /// The address space whose code is read now; any number.
    pub space: u32,
    /// The addresses with changed bytes, as (first, last) inclusive ranges.
    pub ranges: Vec<(Avma, Avma)>,
}

/// The code of one process: sections, of which later ones cover earlier ones, and the changes made
/// while the process ran.
#[derive(Clone, Debug, Default)]
pub struct Image {
    sections: SectionMap,
    versions: Versions,
}

impl Image {
    /// Returns an image without code.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a section over the initial code.
    pub fn add(&mut self, section: Section) {
        self.sections.add(section);
    }

    /// Sets the changes of the code, and where each thread comes to see them.
    ///
    /// If two changes overlap, the one of the later version covers the other. Within one version,
    /// the later in the list does. Changes of the first version are put over the initial code.
    pub fn set_versions(&mut self, changes: Vec<Change>, boundaries: BTreeMap<Tid, Vec<Boundary>>) {
        let (first, later) = changes
            .into_iter()
            .partition::<Vec<_>, _>(|change| change.since == Version::default());
        first.into_iter().for_each(|change| self.add(change.section));
        self.versions = Versions::new(later, boundaries);
    }

    /// Returns the address ranges with bytes in the first version, ascending, as (first, last)
    /// inclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (Avma, Avma)> + '_ {
        self.sections.ranges()
    }

    /// Returns whether the first version has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Copies bytes of the first version from `at` on into `out`, up to the first hole, and returns
    /// how many.
    pub fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        self.sections.read(at, out)
    }

    /// Like [`Self::read`], for the bytes of a version ([`History::version`]).
    ///
    /// [`History::version`]: crate::History::version
    pub fn read_version(&self, version: Version, at: Avma, out: &mut [u8]) -> usize {
        let Some(reach) = (out.len() as u64).checked_sub(1) else {
            return 0;
        };
        let last = Avma(at.0.saturating_add(reach));
        let changes = self.versions.around(at, last, version);
        if changes.is_empty() {
            return self.sections.read(at, out);
        }
        let mut sections = self.sections.around(at, last);
        for change in changes {
            sections.add(Section::clone(&change.section));
        }
        sections.read(at, out)
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

    /// Returns the bytes of 0x1000..0x1008 in a version, read from each address on.
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
        // Version 3 comes first, although it covers the others; version 1 has two that overlap.
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
    fn versions_give_their_bytes_and_report_changes() {
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
        assert!(VersionedImage::new(&image, Tid(2)).is_none());
        let versioned = VersionedImage::new(&image, Tid(1)).unwrap();
        let versions = [0, 9, 10, 19, 20, 99].map(|offset| versioned.version_at(offset).0);
        assert_eq!(versions, [0, 0, 1, 1, 3, 3]);
        let changed = [0, 1, 2, 3, 3, 1].map(|version| {
            let changed = versioned.go_to(Version(version));
            for (skip, expected) in seen(&image, version).into_iter().enumerate() {
                let mut out = vec![0; 8];
                let got = versioned.read(Avma(0x1000 + skip as u64), &mut out);
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
