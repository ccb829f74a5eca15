//! The code of one process, assembled from sections of files and memory, and its versions.

mod section_map;
mod versioned;
mod versions;

pub(crate) use versioned::VersionedImage;
pub use versions::{Boundary, Change, NewCode, TimedChange, Version};

use backtrail_pt::{Avma, Tid, Tsc};
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

    /// Returns whether the code depends on the time. Then code that is missing at a PSB may be
    /// known from it on.
    fn depends_on_time(&self) -> bool {
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

    /// Sets the changes of the code whose times are known, for traces without boundaries.
    ///
    /// If two changes overlap, the later one covers the other. At one time, the later in the list
    /// does. Flow that may have run before or after a change is decoded only with the code that is
    /// the same in both cases.
    pub fn set_timed_versions(&mut self, changes: Vec<TimedChange>) {
        self.versions = Versions::by_time(changes);
    }

    /// Returns the version that holds from the changes of a time on, if versions begin at times;
    /// `None`: an unknown time.
    #[must_use]
    pub fn version_since(&self, at: Option<Tsc>) -> Version {
        self.versions.since(at)
    }

    /// Returns whether there are versions that begin at times.
    pub(crate) fn has_timed_versions(&self) -> bool {
        self.versions.are_timed() && !self.versions.is_empty()
    }

    /// Returns ranges that contain all code that differs between two versions.
    pub(crate) fn changed_between(&self, one: Version, other: Version) -> Vec<(Avma, Avma)> {
        self.versions.covered(one.min(other), one.max(other))
    }

    /// Removes the bytes from one address to another, the last included.
    pub fn remove(&mut self, first: Avma, last: Avma) {
        self.sections.remove(first, last);
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
            change.code.apply(&mut sections);
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
    fn versions_by_time_follow_the_bounds_of_flow() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2, 3, 4]));
        let timed = |at: Option<u64>, code| TimedChange {
            at: at.map(Tsc),
            code,
        };
        let known = |start, bytes: &[u8]| NewCode::Known(section(start, bytes));
        let mut changes = vec![
            timed(Some(200), NewCode::Unknown(Avma(0x1000), Avma(0x1000))),
            timed(Some(100), known(0x1001, &[20, 21])),
            timed(Some(200), known(0x1003, &[30])),
        ];
        image.set_timed_versions(changes.clone());
        assert!(image.has_timed_versions());
        assert_eq!(seen(&image, 0)[0], [1, 2, 3, 4]);
        assert_eq!(seen(&image, 1)[0], [1, 20, 21, 4]);
        assert_eq!(
            (seen(&image, 2)[0].len(), &*seen(&image, 2)[1]),
            (0, &[20, 21, 30][..])
        );
        let between = |image: &Image, after: Option<u64>, before: Option<u64>| {
            let range = image.versions.between(after.map(Tsc), before.map(Tsc));
            (range.start().0, range.end().0)
        };
        assert_eq!(between(&image, None, Some(99)), (0, 0));
        assert_eq!(between(&image, Some(50), Some(100)), (0, 1));
        assert_eq!(between(&image, Some(100), Some(199)), (1, 1));
        assert_eq!(between(&image, Some(99), None), (0, 2));
        assert_eq!(between(&image, Some(200), None), (2, 2));
        assert_eq!(between(&image, None, None), (0, 2));
        changes.push(timed(None, known(0x1000, &[9])));
        image.set_timed_versions(changes);
        assert_eq!(between(&image, Some(100), Some(199)), (1, 3));
        assert_eq!(
            image.changed_between(Version(3), Version(2)),
            [(Avma(0x1000), Avma(0x1000))]
        );
    }

    #[test]
    fn code_that_differs_between_possible_versions_is_unknown() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2, 3, 4]));
        let change = |at, start, bytes: &[u8]| TimedChange {
            at: Some(Tsc(at)),
            code: NewCode::Known(section(start, bytes)),
        };
        image.set_timed_versions(vec![change(10, 0x1001, &[20]), change(20, 0x1003, &[30])]);
        let versioned = VersionedImage::timed(&image).unwrap();
        let read = |at: u64| {
            let mut out = vec![0; 8];
            let got = versioned.read(Avma(at), &mut out);
            out.truncate(got);
            out
        };
        let go_to = |first, last| {
            let changed = versioned.go_to(Version(first)..=Version(last));
            changed.map(|list| list.into_iter().map(|(first, _)| first.0).collect::<Vec<_>>())
        };
        assert_eq!(read(0x1000), [1, 2, 3, 4]);
        assert_eq!(go_to(0, 0), None);
        assert_eq!(go_to(0, 1), Some(vec![0x1001]));
        assert_eq!(
            (read(0x1000), read(0x1001), read(0x1002)),
            (vec![1], vec![], vec![3, 4])
        );
        assert!(versioned.is_uncertain(Avma(0x1001)) && !versioned.is_uncertain(Avma(0x1002)));
        assert_eq!(go_to(0, 2), Some(vec![0x1001, 0x1001, 0x1003]));
        assert_eq!((read(0x1000), read(0x1002)), (vec![1], vec![3]));
        assert_eq!(go_to(1, 2), Some(vec![0x1001, 0x1003, 0x1001, 0x1003]));
        assert_eq!(read(0x1000), [1, 20, 3]);
        assert_eq!(go_to(2, 2), Some(vec![0x1003, 0x1003]));
        assert_eq!(read(0x1000), [1, 20, 3, 30]);
        // Going back counts all as changed.
        assert_eq!(go_to(0, 0), Some(vec![0x1001, 0x1003]));
        assert_eq!(read(0x1000), [1, 2, 3, 4]);
    }

    /// A trace whose times go back and forth.
    #[test]
    fn many_switches_between_versions_stay_bounded() {
        const CHANGES: u32 = 20_000;
        let mut image = Image::new();
        image.add(section(0x1000, &[1; 64]));
        let change = |number| TimedChange {
            at: Some(Tsc(u64::from(number))),
            code: NewCode::Known(section(0x1000 + u64::from(number % 8), &[2])),
        };
        image.set_timed_versions((0..CHANGES).map(change).collect());
        let versioned = VersionedImage::timed(&image).unwrap();
        let [mut first, mut later] = [[0; 4]; 2];
        versioned.go_to(Version(4)..=Version(4));
        assert_eq!(versioned.read(Avma(0x1002), &mut first), 4);
        assert_eq!(first, [2, 2, 1, 1]);
        let began = std::time::Instant::now();
        for _ in 0..100_000 {
            versioned.go_to(Version(0)..=Version(0));
            versioned.go_to(Version(CHANGES)..=Version(CHANGES));
        }
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
        // Now only code that never changes is known.
        versioned.go_to(Version(4)..=Version(4));
        assert_eq!(versioned.read(Avma(0x1002), &mut later), 0);
        assert!(versioned.is_uncertain(Avma(0x1007)) && !versioned.is_uncertain(Avma(0x1008)));
        assert_eq!((versioned.read(Avma(0x1008), &mut later), later), (4, [1; 4]));
    }

    #[test]
    fn many_changes_are_covered_by_one_range() {
        let mut image = Image::new();
        let change = |number: u32| TimedChange {
            at: Some(Tsc(u64::from(number))),
            code: NewCode::Known(section(0x1000 + u64::from(number) * 16, &[2; 4])),
        };
        image.set_timed_versions((0..100).map(change).collect());
        let few = image.changed_between(Version(2), Version(4));
        assert_eq!(few, [(Avma(0x1020), Avma(0x1023)), (Avma(0x1030), Avma(0x1033))]);
        let many = image.changed_between(Version(90), Version(1));
        assert_eq!(many, [(Avma(0x1000), Avma(0x1633))]);
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
            let changed = versioned.go_to(Version(version)..=Version(version));
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
