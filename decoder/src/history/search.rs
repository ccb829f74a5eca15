//! Searching a history for addresses, block by block.

use super::{History, Place};
use crate::PcSet;
use std::ops::Range;

/// Which instructions of which blocks are in a set of addresses.
struct Hits {
    /// By block id: how many of its instructions are in the set.
    counts: Vec<u16>,
}

impl Hits {
    fn new(history: &History, pcs: &PcSet) -> Self {
        let blocks = &history.flow.blocks;
        let count = |id: usize| {
            let id = id as u32;
            let Some(block) = blocks.get(id) else { return 0 };
            let inside = |offset: u16| pcs.contains(block.start + u64::from(offset));
            blocks.code(id).iter().filter(|code| inside(code.offset)).count() as u16
        };
        Self {
            counts: (0..blocks.len()).map(count).collect(),
        }
    }

    fn count(&self, block: u32) -> u16 {
        self.counts.get(block as usize).copied().unwrap_or(0)
    }
}

impl History {
    /// The first index at or after `from` whose address is in the set.
    #[must_use]
    pub fn next_at(&self, from: u64, pcs: &PcSet) -> Option<u64> {
        let hits = Hits::new(self, pcs);
        let start = self.flow.place(from)?;
        let mut before = from - start.within as u64;
        let mut skip = start.within;
        for &block in self.flow.executions().get(start.execution..)? {
            if hits.count(block) > 0 {
                let count = self.flow.blocks.count(block) as usize;
                if let Some(within) = (skip..count).find(|&within| self.hit(block, within, pcs)) {
                    return Some(before + within as u64);
                }
            }
            before += self.flow.blocks.count(block);
            skip = 0;
        }
        None
    }

    /// The last index before `before` whose address is in the set.
    #[must_use]
    pub fn prev_at(&self, before: u64, pcs: &PcSet) -> Option<u64> {
        let hits = Hits::new(self, pcs);
        let last = before.min(self.len()).checked_sub(1)?;
        let Place { execution, within } = self.flow.place(last)?;
        let mut end = last + 1;
        let mut limit = within + 1;
        for (step, &block) in self.flow.executions().get(..=execution)?.iter().rev().enumerate() {
            if step > 0 {
                limit = self.flow.blocks.count(block) as usize;
            }
            let start = end - limit as u64;
            let hit = |&within: &usize| hits.count(block) > 0 && self.hit(block, within, pcs);
            if let Some(within) = (0..limit).rev().find(hit) {
                return Some(start + within as u64);
            }
            end = start;
        }
        None
    }

    /// How many indices in the range have an address in the set.
    #[must_use]
    pub fn count_at(&self, range: Range<u64>, pcs: &PcSet) -> u64 {
        let hits = Hits::new(self, pcs);
        let end = range.end.min(self.len());
        let Some(start) = self.flow.place(range.start).filter(|_| range.start < end) else {
            return 0;
        };
        let mut at = range.start;
        let mut skip = start.within;
        let mut found = 0;
        for &block in self.flow.executions().get(start.execution..).unwrap_or(&[]) {
            let count = self.flow.blocks.count(block) as usize;
            let stop = count.min(skip + (end - at) as usize);
            found += if skip == 0 && stop == count {
                u64::from(hits.count(block))
            } else {
                (skip..stop)
                    .filter(|&within| self.hit(block, within, pcs))
                    .count() as u64
            };
            at += (stop - skip) as u64;
            skip = 0;
            if at >= end {
                break;
            }
        }
        found
    }

    fn hit(&self, block: u32, within: usize, pcs: &PcSet) -> bool {
        self.flow
            .blocks
            .instruction(block, within)
            .is_some_and(|found| pcs.contains(found.pc))
    }
}
