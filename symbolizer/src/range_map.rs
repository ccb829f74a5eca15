//! Lookup by address among ranges that may nest or overlap.

use std::ops::Range;

/// Which of many ranges holds an address: the one that starts last, the inner one of nested ranges.
///
/// Built in O(n log n), asked in O(log n), whatever the overlaps.
#[derive(Default)]
pub(crate) struct RangeMap {
    /// Disjoint pieces in address order, each with the number of the range it came from.
    pieces: Vec<(Range<u64>, u32)>,
}

impl RangeMap {
    /// From ranges and their numbers; empty ranges are dropped. Of two that start together the
    /// shorter is the inner one, and of two equal ones the later in the list.
    pub fn new(mut ranges: Vec<(Range<u64>, u32)>) -> Self {
        ranges.retain(|(range, _)| !range.is_empty());
        ranges.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut sweep = Sweep {
            pieces: Vec::with_capacity(ranges.len()),
            open: Vec::new(),
            at: 0,
        };
        for (range, number) in ranges {
            sweep.advance(range.start);
            sweep.open.push((range.end, number));
        }
        sweep.advance(u64::MAX);
        Self { pieces: sweep.pieces }
    }

    /// The number of the range that holds `at`.
    pub fn get(&self, at: u64) -> Option<u32> {
        let next = self.pieces.partition_point(|(piece, _)| piece.start <= at);
        let (piece, number) = self.pieces.get(next.checked_sub(1)?)?;
        piece.contains(&at).then_some(*number)
    }

    /// The numbers of the ranges that meet `wanted`, in address order, some more than once.
    pub fn meeting(&self, wanted: Range<u64>) -> impl Iterator<Item = u32> {
        let first = self
            .pieces
            .partition_point(|(piece, _)| piece.end <= wanted.start);
        let pieces = self.pieces.get(first..).unwrap_or_default().iter();
        pieces
            .take_while(move |(piece, _)| piece.start < wanted.end)
            .map(|(_, number)| *number)
    }
}

/// A walk up the addresses with the ranges that are open on a stack.
struct Sweep {
    pieces: Vec<(Range<u64>, u32)>,
    open: Vec<(u64, u32)>,
    at: u64,
}

impl Sweep {
    /// Gives the addresses up to `to` to the innermost open ranges. Each turn closes a range or ends.
    fn advance(&mut self, to: u64) {
        while let Some(&(end, number)) = self.open.last() {
            let until = end.min(to);
            if self.at < until {
                self.pieces.push((self.at..until, number));
                self.at = until;
            }
            if end > to {
                break;
            }
            self.open.pop();
        }
        self.at = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_range_wins_and_the_outer_goes_on_after_it() {
        let map = RangeMap::new(vec![
            (10..100, 0),
            (20..30, 1),
            (25..40, 2),
            (50..50, 3),
            (100..110, 4),
        ]);
        let expected = [
            (9, None),
            (10, Some(0)),
            (20, Some(1)),
            (25, Some(2)),
            (30, Some(2)),
            (40, Some(0)),
            (50, Some(0)),
            (99, Some(0)),
            (100, Some(4)),
            (110, None),
        ];
        for (at, number) in expected {
            assert_eq!(map.get(at), number, "{at}");
        }
        assert_eq!(map.meeting(15..25).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(map.meeting(0..10).count(), 0);
    }

    #[test]
    fn agrees_with_a_search_of_all_ranges() {
        let mut seed = 7u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            // Distinct starts, so that the answer is unique.
            let ranges: Vec<_> = (0..12u32)
                .map(|n| (u64::from(n) * 5, n))
                .map(|(s, n)| (s..s + next(40), n))
                .collect();
            let map = RangeMap::new(ranges.clone());
            for at in 0..110 {
                let slow = ranges
                    .iter()
                    .filter(|(r, _)| r.contains(&at))
                    .max_by_key(|(r, _)| r.start);
                assert_eq!(map.get(at), slow.map(|(_, n)| *n), "{ranges:?} {at}");
            }
        }
    }
}
