//! A set of instruction addresses, for searches in a history.

use backtrail_pt::Avma;
use std::ops::Range;

/// Addresses as sorted ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcSet {
    ranges: Vec<Range<Avma>>,
}

impl PcSet {
    /// Returns the set of all addresses in the ranges.
    pub fn from_ranges(ranges: impl IntoIterator<Item = Range<Avma>>) -> Self {
        let mut sorted: Vec<_> = ranges
            .into_iter()
            .filter(|range| range.start < range.end)
            .collect();
        sorted.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<Avma>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self { ranges: merged }
    }

    /// Returns whether the address is in the set.
    #[must_use]
    pub fn contains(&self, pc: Avma) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= pc);
        after
            .checked_sub(1)
            .and_then(|at| self.ranges.get(at))
            .is_some_and(|range| pc < range.end)
    }

    /// Returns the addresses that are in a range.
    #[must_use]
    pub fn within(&self, range: Range<Avma>) -> Self {
        let first = self.ranges.partition_point(|own| own.end <= range.start);
        let end = self.ranges.partition_point(|own| own.start < range.end);
        let inside = self.ranges.get(first..end).unwrap_or(&[]).iter();
        Self::from_ranges(inside.map(|own| own.start.max(range.start)..own.end.min(range.end)))
    }

    /// Returns the lowest address.
    #[must_use]
    pub fn first(&self) -> Option<Avma> {
        self.ranges.first().map(|range| range.start)
    }

    /// Returns the ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[Range<Avma>] {
        &self.ranges
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl FromIterator<Avma> for PcSet {
    fn from_iter<I: IntoIterator<Item = Avma>>(pcs: I) -> Self {
        // The highest address has no exclusive end, and holds no instruction.
        Self::from_ranges(pcs.into_iter().filter(|pc| pc.0 != u64::MAX).map(|pc| pc..pc + 1))
    }
}

impl From<Avma> for PcSet {
    fn from(pc: Avma) -> Self {
        std::iter::once(pc).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_is_exact() {
        let set: PcSet = [5, 6, 9, u64::MAX].into_iter().map(Avma).collect();
        let inside: Vec<u64> = (0..12).filter(|&pc| set.contains(Avma(pc))).collect();
        assert_eq!(inside, [5, 6, 9]);
        assert!(!set.contains(Avma(u64::MAX)));
        let within = |start, end| set.within(Avma(start)..Avma(end));
        assert_eq!(within(0, 6), PcSet::from(Avma(5)));
        assert_eq!(within(6, 10), [6, 9].into_iter().map(Avma).collect());
        assert!(within(7, 9).is_empty() && within(9, 3).is_empty());
        assert!(PcSet::from_ranges([Avma(3)..Avma(3)]).is_empty());
        assert!(PcSet::from_ranges([Avma(3)..Avma(9), Avma(4)..Avma(5)]).contains(Avma(8)));
    }
}
