//! Finds equal blocks of a history by their start addresses.

use crate::BlockId;
use crate::block::{Blocks, Code};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The blocks whose bytes are current.
#[derive(Debug, Default)]
pub(super) struct BlocksByStart {
    /// The most recent block at an address.
    latest: FxHashMap<Avma, BlockId>,
    /// The next block at the same address, by block: of another length, or with other bytes if a
    /// code change was not reported. [`BlockId::NONE`]: there is none.
    next: Vec<BlockId>,
    /// The addresses in order; `None`: no code has changed yet.
    ordered: Option<BTreeSet<Avma>>,
    /// The longest block in bytes.
    longest: u64,
}

impl BlocksByStart {
    /// Returns the most recent block at an address.
    pub fn latest(&self, start: Avma) -> Option<BlockId> {
        self.latest
            .get(&start)
            .copied()
            .filter(|&block| block != BlockId::NONE)
    }

    /// Returns the block with this start and these instructions, and adds it to the table if
    /// needed. `None`: the table is full.
    pub fn find(&mut self, start: Avma, code: &[Code], blocks: &mut Blocks) -> Option<BlockId> {
        let first = self.latest.entry(start).or_insert(BlockId::NONE);
        let (mut before, mut block) = (BlockId::NONE, *first);
        while block != BlockId::NONE && blocks.code(block) != code {
            before = block;
            block = self.next.get(block.index()).copied().unwrap_or(BlockId::NONE);
        }
        if block == BlockId::NONE {
            let new = blocks.push(start, code)?;
            // The new block becomes the most recent.
            self.next.resize(new.index(), BlockId::NONE);
            self.next.push(std::mem::replace(first, new));
            self.longest = self.longest.max(blocks.size(new));
            if let Some(ordered) = &mut self.ordered {
                ordered.insert(start);
            }
            return Some(new);
        }
        if before != BlockId::NONE {
            // The found block becomes the most recent.
            let after = std::mem::replace(self.next.get_mut(block.index())?, *first);
            *self.next.get_mut(before.index())? = after;
            *first = block;
        }
        Some(block)
    }

    /// Removes the blocks with bytes in this (first, last) inclusive range, which have changed.
    pub fn forget(&mut self, first: Avma, last: Avma, blocks: &Blocks) {
        let from = Avma(first.0.saturating_sub(self.longest));
        let latest = &self.latest;
        let ordered = self
            .ordered
            .get_or_insert_with(|| latest.keys().copied().collect());
        let near: Vec<Avma> = ordered.range(from..=last).copied().collect();
        for start in near {
            let mut block = self.latest.remove(&start).unwrap_or(BlockId::NONE);
            // The remaining blocks, the most recent first.
            let mut stay = Vec::new();
            while block != BlockId::NONE {
                if start.0.saturating_add(blocks.size(block)) <= first.0 {
                    stay.push(block);
                }
                block = self.next.get(block.index()).copied().unwrap_or(BlockId::NONE);
            }
            for (at, &block) in stay.iter().enumerate() {
                if let Some(other) = self.next.get_mut(block.index()) {
                    *other = stay.get(at + 1).copied().unwrap_or(BlockId::NONE);
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

    /// Returns instructions of a byte each.
    fn code(count: u16) -> Vec<Code> {
        let one = |offset| Code {
            offset,
            len: 1,
            cofi: Cofi::Sequential,
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn equal_blocks_are_merged_and_latest_is_first() {
        let (mut starts, mut blocks) = (BlocksByStart::default(), Blocks::default());
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
        assert_eq!(found, [0, 1, 2, 0, 3, 1, 0, 3, 2].map(BlockId));
    }

    #[test]
    fn blocks_with_changed_bytes_are_not_found() {
        let (mut starts, mut blocks) = (BlocksByStart::default(), Blocks::default());
        let all = |starts: &mut BlocksByStart, blocks: &mut Blocks| {
            [(10, 2), (10, 4), (10, 8), (13, 1), (14, 2), (20, 1)]
                .map(|(start, count)| starts.find(Avma(start), &code(count), blocks).unwrap())
        };
        assert_eq!(all(&mut starts, &mut blocks), [0, 1, 2, 3, 4, 5].map(BlockId));
        starts.forget(Avma(14), Avma(15), &blocks);
        assert_eq!(starts.latest(Avma(10)), Some(BlockId(1)));
        assert_eq!(starts.latest(Avma(14)), None);
        assert_eq!(all(&mut starts, &mut blocks), [0, 1, 6, 3, 7, 5].map(BlockId));
        // Blocks added later are removed too.
        starts.forget(Avma(0), Avma(100), &blocks);
        assert_eq!(all(&mut starts, &mut blocks), [8, 9, 10, 11, 12, 13].map(BlockId));
        starts.forget(Avma(0), Avma(9), &blocks);
        assert_eq!(all(&mut starts, &mut blocks), [8, 9, 10, 11, 12, 13].map(BlockId));
    }
}
