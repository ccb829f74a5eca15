//! Splits overlapping ranges into disjoint ones with the sum of their counts.

use super::branch_profile::CodeRange;
use backtrail_pt::Svma;
use std::collections::BTreeMap;

/// The sums of the ranges that begin and end at an address.
#[derive(Clone, Copy, Default)]
struct Boundary {
    begins: u64,
    begun: u32,
    ends: u64,
    ended: u32,
}

/// Returns disjoint ranges in ascending order. Both ends of a range belong to it. A range with
/// count 0 covers the code that the others leave out.
pub(super) fn disjoint(ranges: impl Iterator<Item = (CodeRange, u64)>) -> Vec<(CodeRange, u64)> {
    let mut boundaries: BTreeMap<u64, Boundary> = BTreeMap::new();
    for (range, count) in ranges {
        let first = boundaries.entry(range.first.0).or_default();
        first.begins = first.begins.saturating_add(count);
        first.begun += 1;
        let last = boundaries.entry(range.last.0).or_default();
        last.ends = last.ends.saturating_add(count);
        last.ended += 1;
    }
    let mut disjoint = Vec::new();
    let mut add = |first: u64, last: u64, count: u64| {
        disjoint.push((
            CodeRange {
                first: Svma(first),
                last: Svma(last),
            },
            count,
        ));
    };
    // The start of the current range, if any range is open.
    let mut start: Option<u64> = None;
    let (mut count, mut open) = (0_u64, 0_u32);
    for (address, boundary) in boundaries {
        if boundary.begun > 0 {
            if let Some(start) = start.filter(|start| *start < address) {
                add(start, address - 1, count);
            }
            count = count.saturating_add(boundary.begins);
            open += boundary.begun;
            start = Some(address);
        }
        if boundary.ended > 0 {
            if let Some(start) = start.filter(|start| *start <= address) {
                add(start, address, count);
            }
            count = count.saturating_sub(boundary.ends);
            open = open.saturating_sub(boundary.ended);
            start = address.checked_add(1).filter(|_| open > 0);
        }
    }
    disjoint
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(ranges: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64)> {
        let ranges = ranges.iter().map(|(first, last, count)| {
            let range = CodeRange {
                first: Svma(*first),
                last: Svma(*last),
            };
            (range, *count)
        });
        let disjoint = disjoint(ranges);
        disjoint
            .into_iter()
            .map(|(range, count)| (range.first.0, range.last.0, count))
            .collect()
    }

    #[test]
    fn counts_of_overlaps_are_added_up() {
        assert_eq!(
            split(&[(10, 20, 100), (10, 30, 200)]),
            [(10, 20, 300), (21, 30, 200)]
        );
        assert_eq!(
            split(&[(10, 20, 100), (20, 30, 200)]),
            [(10, 19, 100), (20, 20, 300), (21, 30, 200)]
        );
    }

    #[test]
    fn ranges_of_count_zero_fill_the_rest() {
        assert_eq!(
            split(&[(0, 50, 0), (10, 20, 100), (30, 40, 200)]),
            [(0, 9, 0), (10, 20, 100), (21, 29, 0), (30, 40, 200), (41, 50, 0)]
        );
        assert_eq!(split(&[(0, 5, 1), (10, 15, 2)]), [(0, 5, 1), (10, 15, 2)]);
        assert_eq!(split(&[(7, 7, 3)]), [(7, 7, 3)]);
    }

    proptest::proptest! {
        /// Every address has the sum of the counts of the ranges around it.
        #[test]
        fn sums_are_right(ranges in proptest::collection::vec((0u64..40, 0u64..12, 0u64..9), 0..12)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(first, len, count)| (first, first + len, count)).collect();
            let found = split(&ranges);
            for address in 0..60 {
                let around: Vec<_> = ranges.iter().filter(|(first, last, _)| (*first..=*last).contains(&address)).collect();
                let mut at = found.iter().filter(|(first, last, _)| (*first..=*last).contains(&address));
                let (one, other) = (at.next(), at.next());
                proptest::prop_assert!(other.is_none());
                let sum = around.iter().map(|(_, _, count)| count).sum::<u64>();
                proptest::prop_assert_eq!(one.map(|(_, _, count)| *count), (!around.is_empty()).then_some(sum));
            }
        }
    }
}
