//! Finds ranges by address. The ranges may nest or overlap.

use std::ops::Range;

/// Maps an address to the range that contains it and starts last: the inner one of nested ranges.
///
/// The map is built in O(n log n) and queried in O(log n), however the ranges overlap.
#[derive(Default)]
pub(crate) struct RangeMap {
    /// Disjoint pieces in address order, each with the number of its range.
    pieces: Vec<(Range<u64>, u32)>,
}

impl RangeMap {
    /// Builds a map from ranges and their numbers. Empty ranges are dropped. Of two ranges with the
    /// same start, the shorter one is inner. Of two equal ranges, the later one is.
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

    /// Returns the number of the range that contains `at`.
    pub fn get(&self, at: u64) -> Option<u32> {
        let next = self.pieces.partition_point(|(piece, _)| piece.start <= at);
        let (piece, number) = self.pieces.get(next.checked_sub(1)?)?;
        piece.contains(&at).then_some(*number)
    }

    /// Returns the disjoint pieces, in address order, each with the number of its range.
    pub fn pieces(&self) -> impl Iterator<Item = (Range<u64>, u32)> {
        self.pieces.iter().cloned()
    }

    /// Returns the parts of the pieces in `wanted`, in address order.
    pub fn pieces_in(&self, wanted: Range<u64>) -> impl Iterator<Item = (Range<u64>, u32)> {
        let first = self
            .pieces
            .partition_point(|(piece, _)| piece.end <= wanted.start);
        let pieces = self.pieces.get(first..).unwrap_or_default().iter();
        pieces
            .take_while(move |(piece, _)| piece.start < wanted.end)
            .map(move |(piece, number)| (piece.start.max(wanted.start)..piece.end.min(wanted.end), *number))
    }

    /// Returns the numbers of the ranges that overlap `wanted`, in address order. A number may
    /// occur twice.
    pub fn meeting(&self, wanted: Range<u64>) -> impl Iterator<Item = u32> {
        self.pieces_in(wanted).map(|(_, number)| number)
    }
}

/// A sweep over the addresses, with a stack of open ranges.
struct Sweep {
    pieces: Vec<(Range<u64>, u32)>,
    open: Vec<(u64, u32)>,
    at: u64,
}

impl Sweep {
    /// Assigns the addresses up to `to` to the innermost open ranges. Each iteration closes a range
    /// or ends the loop.
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
    fn inner_range_wins_and_outer_resumes_after_it() {
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
        let inside: Vec<_> = map.pieces_in(15..27).collect();
        assert_eq!(inside, [(15..20, 0), (20..25, 1), (25..27, 2)]);
        assert_eq!(map.pieces().count(), 5);
    }

    #[test]
    fn range_map_agrees_with_linear_search() {
        let mut seed = 7u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            // Distinct starts make the result unique.
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
