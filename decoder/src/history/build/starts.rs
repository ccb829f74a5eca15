//! The blocks of a history by where they start, to find equal ones.

use crate::block::{Blocks, Code};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// All blocks whose bytes are still there.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// The block that began at an address last.
    latest: FxHashMap<Avma, u32>,
    /// By block, another that starts at the same address: a longer or a shorter one, or one of before, where code changed and
    /// nobody told. [`NONE`]: there is no other.
    others: Vec<u32>,
    /// The addresses in order; `None`: no code has changed yet.
    ordered: Option<BTreeSet<Avma>>,
    /// Bytes of the longest block.
    longest: u64,
}

const NONE: u32 = u32::MAX;

impl Starts {
    /// The block that began at an address last.
    pub fn latest(&self, start: Avma) -> Option<u32> {
        self.latest.get(&start).copied().filter(|&block| block != NONE)
    }

    /// The block of the table that starts at an address and has these instructions, which is put into the table if it is not there;
    /// `None`: there is no room.
    pub fn find(&mut self, start: Avma, code: &[Code], blocks: &mut Blocks) -> Option<u32> {
        let first = self.latest.entry(start).or_insert(NONE);
        let (mut before, mut block) = (NONE, *first);
        while block != NONE && blocks.code(block) != code {
            before = block;
            block = self.others.get(block as usize).copied().unwrap_or(NONE);
        }
        if block == NONE {
            let new = blocks.push(start, code)?;
            // It is the latest, and the others are behind it.
            self.others.resize(new as usize, NONE);
            self.others.push(std::mem::replace(first, new));
            self.longest = self.longest.max(blocks.size(new));
            if let Some(ordered) = &mut self.ordered {
                ordered.insert(start);
            }
            return Some(new);
        }
        if before != NONE {
            // Now it is.
            let behind = std::mem::replace(self.others.get_mut(block as usize)?, *first);
            *self.others.get_mut(before as usize)? = behind;
            *first = block;
        }
        Some(block)
    }

    /// The bytes at these addresses, (first, last) inclusive, are others: blocks with any of them are not found any more.
    pub fn forget(&mut self, first: Avma, last: Avma, blocks: &Blocks) {
        let from = Avma(first.0.saturating_sub(self.longest));
        let latest = &self.latest;
        let ordered = self
            .ordered
            .get_or_insert_with(|| latest.keys().copied().collect());
        let near: Vec<Avma> = ordered.range(from..=last).copied().collect();
        for start in near {
            let mut block = self.latest.remove(&start).unwrap_or(NONE);
            // Those that stay, the latest first.
            let mut stay = Vec::new();
            while block != NONE {
                if start.0.saturating_add(blocks.size(block)) <= first.0 {
                    stay.push(block);
                }
                block = self.others.get(block as usize).copied().unwrap_or(NONE);
            }
            for (at, &block) in stay.iter().enumerate() {
                if let Some(other) = self.others.get_mut(block as usize) {
                    *other = stay.get(at + 1).copied().unwrap_or(NONE);
                }
            }
            match stay.first() {
                Some(&block) => _ = self.latest.insert(start, block),
                None => _ = ordered.remove(&start),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Cofi;

    /// So many instructions of a byte each.
    fn code(count: u16) -> Vec<Code> {
        let one = |offset| Code {
            offset,
            len: 1,
            cofi: Cofi::Sequential,
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn equal_blocks_are_one_and_the_latest_is_told() {
        let (mut starts, mut blocks) = (Starts::default(), Blocks::default());
        let mut find = |start, count| {
            let found = starts.find(Avma(start), &code(count), &mut blocks).unwrap();
            assert_eq!(starts.latest(Avma(start)), Some(found));
            found
        };
        let asked = [
            (7, 3),
            (7, 2),
            (9, 3),
            (7, 3),
            (7, 4),
            (7, 2),
            (7, 3),
            (7, 4),
            (9, 3),
        ];
        let found = asked.map(|(start, count)| find(start, count));
        assert_eq!(found, [0, 1, 2, 0, 3, 1, 0, 3, 2]);
    }

    #[test]
    fn blocks_whose_bytes_are_others_are_not_found_any_more() {
        let (mut starts, mut blocks) = (Starts::default(), Blocks::default());
        let all = |starts: &mut Starts, blocks: &mut Blocks| {
            [(10, 2), (10, 4), (10, 8), (13, 1), (14, 2), (20, 1)]
                .map(|(start, count)| starts.find(Avma(start), &code(count), blocks).unwrap())
        };
        assert_eq!(all(&mut starts, &mut blocks), [0, 1, 2, 3, 4, 5]);
        starts.forget(Avma(14), Avma(15), &blocks);
        assert_eq!(starts.latest(Avma(10)), Some(1));
        assert_eq!(starts.latest(Avma(14)), None);
        assert_eq!(all(&mut starts, &mut blocks), [0, 1, 6, 3, 7, 5]);
        // New ones are among those that are asked.
        starts.forget(Avma(0), Avma(100), &blocks);
        assert_eq!(all(&mut starts, &mut blocks), [8, 9, 10, 11, 12, 13]);
        starts.forget(Avma(0), Avma(9), &blocks);
        assert_eq!(all(&mut starts, &mut blocks), [8, 9, 10, 11, 12, 13]);
    }
}
