//! Stored translations in the cache.

use super::{Cache, CacheItem, MAX_BLOCK};
use crate::PAGE;
use crate::translate::stored::placed::PlacedUnit;
use crate::translate::stored::unit::IndexedUnit;
use std::ops::Range;
use std::sync::Arc;

impl Cache {
    /// Puts the translations of a mapping that begins at `ip` into the cache. Returns `None` if no
    /// slab in reach has enough room, or if other code was at these addresses before.
    pub(in crate::translate) fn place(&mut self, unit: &Arc<IndexedUnit>, ip: u64) -> Option<()> {
        let has_changed = unit.source.ranges().any(|(start, bytes)| {
            let start = ip + u64::from(start);
            let pages = start / PAGE..(start + bytes.len() as u64).div_ceil(PAGE);
            self.changed.range(pages).next().is_some()
        });
        if has_changed {
            return None;
        }
        let size = unit.code_size() + MAX_BLOCK;
        let has_room = |slab: &super::CacheSlab| slab.reaches(ip) && slab.used + size <= self.room;
        let index = self.slabs.iter().position(has_room)?;
        let slab = self.slabs.get(index)?;
        let at = slab.address + slab.used;
        let code = unit.code_at(ip, at)?;
        self.emit(index, &code, &[])?;
        let placed = PlacedUnit::new(Arc::clone(unit), ip, at);
        self.placed.push(placed.clone());
        for (target, entry) in placed.indirect_entries() {
            self.put_first(target, entry);
        }
        Some(())
    }

    /// Turns stored translations of code in `range` into ordinary blocks, which can be invalidated.
    pub(super) fn take_apart(&mut self, range: &Range<u64>) {
        while let Some(index) = self.placed.iter().position(|unit| unit.has_code_in(range)) {
            let unit = self.placed.swap_remove(index);
            for (at, item) in unit.items() {
                if let CacheItem::Block { ip, source, .. } = &item {
                    self.blocks.entry(*ip).or_insert(at);
                    for page in source.pages() {
                        self.pages.entry(page).or_default().push(*ip);
                    }
                }
                self.items.insert(at, item);
            }
            for (target, entry) in unit.indirect_entries() {
                self.indirect_entries.entry(target).or_insert(entry);
            }
            for (at, cause) in unit.causes() {
                if let super::TrapCause::Exit { site, target } = cause {
                    self.incoming.entry(target).or_default().push((site, at));
                }
                self.traps.insert(at, cause);
            }
        }
    }

    /// Returns whether enough blocks are not from stored translations to store them again.
    pub(in crate::translate) fn has_new_blocks(&self) -> bool {
        /// Fewer than one block in this number is translated again by each process.
        const SHARE: usize = 50;
        let placed: usize = self.placed.iter().map(|unit| unit.unit().blocks.len()).sum();
        self.blocks.len() > placed / SHARE
    }

    /// Returns code at a cache address.
    #[cfg(test)]
    pub(in crate::translate) fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut code = Vec::new();
        if let Some(slab) = self.slabs.iter().find(|slab| slab.contains(address)) {
            slab.memory.read(address - slab.address, len, &mut code);
        }
        code
    }
}
