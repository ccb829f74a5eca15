//! Searching a history for addresses, path by path.

use super::{History, Place};
use crate::PcSet;
use std::ops::Range;

/// Which paths have instructions in a set of addresses.
struct Hits {
    /// By path: how many of its instructions are in the set.
    counts: Vec<u32>,
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
        let of_blocks: Vec<u16> = (0..blocks.len()).map(count).collect();
        let of_block = |&block: &u32| u32::from(of_blocks.get(block as usize).copied().unwrap_or(0));
        let paths = &history.flow.paths;
        let of_path = |path: usize| paths.parts(path as u32).iter().map(of_block).sum();
        Self {
            counts: (0..paths.len()).map(of_path).collect(),
        }
    }

    fn count(&self, path: u32) -> u32 {
        self.counts.get(path as usize).copied().unwrap_or(0)
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
        for &path in self.flow.executions().get(start.execution..)? {
            if hits.count(path) > 0 {
                let count = self.flow.paths.count(path) as usize;
                if let Some(within) = (skip..count).find(|&within| self.hit(path, within, pcs)) {
                    return Some(before + within as u64);
                }
            }
            before += self.flow.paths.count(path);
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
        for (step, &path) in self.flow.executions().get(..=execution)?.iter().rev().enumerate() {
            if step > 0 {
                limit = self.flow.paths.count(path) as usize;
            }
            let start = end - limit as u64;
            let hit = |&within: &usize| hits.count(path) > 0 && self.hit(path, within, pcs);
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
        for &path in self.flow.executions().get(start.execution..).unwrap_or(&[]) {
            let count = self.flow.paths.count(path) as usize;
            let stop = count.min(skip + (end - at) as usize);
            found += if skip == 0 && stop == count {
                u64::from(hits.count(path))
            } else {
                (skip..stop).filter(|&within| self.hit(path, within, pcs)).count() as u64
            };
            at += (stop - skip) as u64;
            skip = 0;
            if at >= end {
                break;
            }
        }
        found
    }

    fn hit(&self, path: u32, within: usize, pcs: &PcSet) -> bool {
        self.flow
            .of_path(path, within)
            .is_some_and(|found| pcs.contains(found.pc))
    }
}
