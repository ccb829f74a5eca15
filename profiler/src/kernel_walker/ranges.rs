//! Allocates ranges of a map that programs may still read for a moment.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The time after which no program reads a range that is not referred to any more. A program runs
/// for less than a millisecond.
const GRACE: Duration = Duration::from_millis(500);

/// The free ranges.
#[derive(Debug)]
pub(super) struct Ranges {
    /// The lengths of free ranges by their starts. They do not touch.
    free: BTreeMap<u32, u32>,
    /// The ranges that will be free, the earliest first.
    retired: VecDeque<(Instant, Range<u32>)>,
}

impl Ranges {
    pub fn new(len: u32) -> Self {
        Self {
            free: BTreeMap::from([(0, len)]),
            retired: VecDeque::new(),
        }
    }

    /// Returns a range, or `None` if there is no room.
    pub fn allocate(&mut self, len: u32, now: Instant) -> Option<Range<u32>> {
        while let Some((at, range)) = self.retired.pop_front() {
            if now.saturating_duration_since(at) < GRACE {
                self.retired.push_front((at, range));
                break;
            }
            self.free_range(range);
        }
        let (start, found) = self
            .free
            .iter()
            .find(|(_, free)| **free >= len)
            .map(|(start, free)| (*start, *free))?;
        self.free.remove(&start);
        if found > len {
            self.free.insert(start + len, found - len);
        }
        Some(start..start + len)
    }

    /// Frees a range after a moment.
    pub fn retire(&mut self, range: Range<u32>, now: Instant) {
        self.retired.push_back((now, range));
    }

    fn free_range(&mut self, range: Range<u32>) {
        let (mut start, mut end) = (range.start, range.end);
        if start == end {
            return;
        }
        if let Some((before, len)) = self.free.range(..start).next_back() {
            let before = *before;
            if before + len == start {
                self.free.remove(&before);
                start = before;
            }
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_ranges_are_free_after_a_moment() {
        let start = Instant::now();
        let mut ranges = Ranges::new(100);
        let a = ranges.allocate(40, start).unwrap();
        let b = ranges.allocate(40, start).unwrap();
        assert_eq!((a.clone(), b.clone()), (0..40, 40..80));
        assert_eq!(ranges.allocate(40, start), None);
        ranges.retire(a, start);
        assert_eq!(ranges.allocate(40, start + GRACE / 2), None);
        ranges.retire(b, start + GRACE / 2);
        let later = start + GRACE;
        assert_eq!(ranges.allocate(41, later), None);
        assert_eq!(ranges.allocate(40, later), Some(0..40));
        ranges.retire(0..40, later);
        // Neighbors become one range again.
        assert_eq!(ranges.allocate(100, later + GRACE), Some(0..100));
    }
}
