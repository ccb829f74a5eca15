//! The places at which a process loaded one file.
//!
//! A file may be loaded several times (`dlmopen`), and it may also be mapped to be read.

use super::modules::LoadSegment;
use backtrail_bundle::PAGE_SIZE;
use backtrail_bundle::core::MappedFile;
use backtrail_pt::Avma;
use std::ops::Range;

/// The most places that are tried. glibc has 16 namespaces.
const MAX_TRIED: usize = 64;
/// The most segments that are compared. Linkers make fewer than ten.
const MAX_SEGMENTS: usize = 256;

/// A file loaded at one place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// Actual minus stated addresses.
    pub bias: u64,
    /// Its mappings.
    pub ranges: Vec<Range<Avma>>,
}

/// Returns the instances among the mappings of a file.
///
/// A mapping belongs to an instance if a segment is at its address, and also at its file offset if
/// `has_offsets`. `may_be_code` returns whether a mapping may be executable: a file with code whose
/// mappings are not was only mapped to be read.
pub(super) fn instances(
    segments: &[LoadSegment],
    mappings: &[MappedFile],
    has_offsets: bool,
    may_be_code: impl Fn(&MappedFile) -> bool,
) -> Vec<Instance> {
    let segments = segments.get(..MAX_SEGMENTS).unwrap_or(segments);
    let Some(lowest) = segments.iter().min_by_key(|segment| segment.at) else {
        return Vec::new();
    };
    let first_offset = if has_offsets { page(lowest.stored.start) } else { 0 };
    let has_code = segments.iter().any(|segment| segment.executable);
    let mut rest: Vec<&MappedFile> = mappings.iter().collect();
    let mut firsts = mappings.iter().filter(|mapping| mapping.offset.0 == first_offset);
    let mut found = Vec::new();
    for _ in 0..MAX_TRIED {
        // A later segment may begin in the first page of the file, too.
        let Some(first) = firsts.find(|first| rest.iter().any(|mapping| mapping.start == first.start)) else {
            break;
        };
        let bias = first.start.0.wrapping_sub(page(lowest.at.0));
        let (own, others) = rest.into_iter().partition::<Vec<_>, _>(|mapping| {
            segments
                .iter()
                .any(|segment| is_part(segment, bias, mapping, has_offsets))
        });
        rest = others;
        if has_code && !own.iter().copied().any(&may_be_code) {
            continue;
        }
        let ranges: Vec<_> = own.iter().map(|mapping| mapping.start..mapping.end).collect();
        if !ranges.is_empty() {
            found.push(Instance { bias, ranges });
        }
    }
    found
}

/// Returns whether a mapping is a part of a segment.
fn is_part(segment: &LoadSegment, bias: u64, mapping: &MappedFile, has_offsets: bool) -> bool {
    let start = page(segment.at.0.wrapping_add(bias));
    let end = segment.at.0.wrapping_add(bias).saturating_add(segment.size);
    let is_inside = (start..end).contains(&mapping.start.0);
    let offset = page(segment.stored.start).wrapping_add(mapping.start.0.wrapping_sub(start));
    is_inside && (!has_offsets || mapping.offset.0 == offset)
}

fn page(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::{FileOffset, Svma};

    fn segment(at: u64, offset: u64, size: u64, executable: bool) -> LoadSegment {
        LoadSegment {
            at: Svma(at),
            size,
            stored: offset..offset + size,
            executable,
        }
    }

    fn mapping(start: u64, pages: u64, offset: u64) -> MappedFile {
        MappedFile {
            start: Avma(start),
            end: Avma(start + pages * PAGE_SIZE),
            offset: FileOffset(offset),
            path: "/file".to_owned(),
        }
    }

    /// Headers, code, and data whose pages share the last page of the code in the file.
    fn library() -> [LoadSegment; 3] {
        [
            segment(0, 0, 0x500, false),
            segment(0x1000, 0x1000, 0x700, true),
            segment(0x2e00, 0x1e00, 0x300, false),
        ]
    }

    fn loaded(base: u64) -> [MappedFile; 3] {
        [
            mapping(base, 1, 0),
            mapping(base + 0x1000, 1, 0x1000),
            mapping(base + 0x2000, 1, 0x1000),
        ]
    }

    fn starts(instance: &Instance) -> Vec<u64> {
        instance.ranges.iter().map(|range| range.start.0).collect()
    }

    #[test]
    fn each_place_of_a_file_has_its_own_bias() {
        let mappings = [loaded(0x10_0000), loaded(0x50_0000)].concat();
        let found = instances(&library(), &mappings, true, |_| true);
        let biases: Vec<u64> = found.iter().map(|instance| instance.bias).collect();
        assert_eq!(biases, [0x10_0000, 0x50_0000]);
        assert_eq!(starts(&found[0]), [0x10_0000, 0x10_1000, 0x10_2000]);
        assert_eq!(starts(&found[1]), [0x50_0000, 0x50_1000, 0x50_2000]);
    }

    #[test]
    fn mapping_that_is_only_read_is_no_instance() {
        let mut mappings = vec![mapping(0x8000, 2, 0)];
        mappings.extend(loaded(0x10_0000));
        let is_code = |mapping: &MappedFile| mapping.start.0 == 0x10_1000;
        let found = instances(&library(), &mappings, true, is_code);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].bias, 0x10_0000);
        // A file of data alone has no code anywhere.
        let data = [segment(0, 0, 0x500, false)];
        let found = instances(&data, &mappings[..1], true, |_| false);
        assert_eq!(starts(&found[0]), [0x8000]);
    }

    #[test]
    fn data_in_the_first_page_of_the_file_is_no_other_place() {
        let program = [
            segment(0x40_0000, 0, 0x600, true),
            segment(0x60_0e10, 0xe10, 0x200, false),
        ];
        let mappings = [mapping(0x40_0000, 1, 0), mapping(0x60_0000, 1, 0)];
        let found = instances(&program, &mappings, true, |_| true);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].bias, found[0].ranges.len()), (0, 2));
    }

    #[test]
    fn debug_file_counts_by_addresses_alone() {
        // `objcopy --only-keep-debug` changes the offsets.
        let moved = library().map(|part| LoadSegment { stored: 0..0, ..part });
        let found = instances(&moved, &loaded(0x10_0000), false, |_| true);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].bias, found[0].ranges.len()), (0x10_0000, 3));
        assert!(instances(&[], &loaded(0x10_0000), true, |_| true).is_empty());
    }
}
