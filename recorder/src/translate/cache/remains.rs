//! The content of a cache whose processes have ended.

use super::{Cache, CacheItem, CacheSlab, TrapCause};
use crate::translate::address_field::AddressField;
use crate::translate::block::SourceBytes;
use crate::translate::stored::placed::PlacedUnit;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks of a cache that no thread uses any more.
#[derive(Debug)]
pub(in crate::translate) struct CacheRemains {
    slabs: Vec<CacheSlab>,
    blocks: FxHashMap<u64, u64>,
    items: BTreeMap<u64, CacheItem>,
    targets: Vec<u64>,
    traps: BTreeMap<u64, TrapCause>,
    placed: Vec<PlacedUnit>,
}

/// A block of a [`CacheRemains`].
pub(in crate::translate) struct RemainingBlock<'a> {
    pub(in crate::translate) ip: u64,
    pub(in crate::translate) at: u64,
    pub(in crate::translate) superblock: bool,
    pub(in crate::translate) source: &'a SourceBytes,
    pub(in crate::translate) code: Vec<u8>,
    /// The offsets of its fields that depend on addresses.
    pub(in crate::translate) fields: Vec<(u32, AddressField)>,
}

impl Cache {
    /// Takes the content out. The cache must not be used afterward.
    pub(in crate::translate) fn take_remains(&mut self) -> CacheRemains {
        CacheRemains {
            slabs: std::mem::take(&mut self.slabs),
            blocks: std::mem::take(&mut self.blocks),
            items: std::mem::take(&mut self.items),
            targets: std::mem::take(&mut self.indirect_entries).into_keys().collect(),
            traps: std::mem::take(&mut self.traps).into_iter().collect(),
            placed: std::mem::take(&mut self.placed),
        }
    }
}

impl CacheRemains {
    /// Returns the stored translations of the mapping at `ip` that the cache had.
    pub(in crate::translate) fn placed(&self, ip: u64) -> Option<&PlacedUnit> {
        self.placed.iter().find(|unit| unit.ip() == ip)
    }

    /// Returns the blocks of the code in `range` that can be stored, in the order of their
    /// addresses.
    pub(in crate::translate) fn blocks(&self, range: &Range<u64>) -> Vec<RemainingBlock<'_>> {
        let in_range = self.blocks.iter().filter(|(ip, _)| range.contains(ip));
        let found = in_range.filter_map(|(_, at)| self.remaining(*at, range));
        let mut blocks: Vec<_> = found.collect();
        blocks.sort_unstable_by_key(|block| block.at);
        blocks
    }

    fn remaining(&self, at: u64, range: &Range<u64>) -> Option<RemainingBlock<'_>> {
        let Some(CacheItem::Block {
            ip,
            version: 0,
            min_version: None,
            superblock,
            source,
            len,
            is_movable: true,
            ..
        }) = self.items.get(&at)
        else {
            return None;
        };
        let mut runs = source.runs();
        let is_inside =
            runs.all(|(start, run)| range.contains(&start) && start + run.len() as u64 <= range.end);
        let slab = self
            .slabs
            .iter()
            .find(|slab| slab.contains(at))
            .filter(|_| is_inside)?;
        let from = at - slab.address;
        let mut code = Vec::new();
        slab.memory.read(from, *len as usize, &mut code);
        let offsets = from as u32..from as u32 + len;
        let first = slab.fields.partition_point(|(at, _)| *at < offsets.start);
        // The constants at the end of a block are noted last, so that blocks are in order.
        let fields = slab
            .fields
            .iter()
            .skip(first)
            .take_while(|(at, _)| *at < offsets.end);
        Some(RemainingBlock {
            ip: *ip,
            at,
            superblock: *superblock,
            source,
            code,
            fields: fields.map(|(at, field)| (at - offsets.start, *field)).collect(),
        })
    }

    /// Returns the traps in the code at these addresses.
    pub(in crate::translate) fn traps(
        &self,
        code: Range<u64>,
    ) -> impl Iterator<Item = (u64, TrapCause)> + '_ {
        self.traps.range(code).map(|(at, cause)| (*at, *cause))
    }

    /// Returns the addresses with entries for indirect branches, without those of stored
    /// translations.
    pub(in crate::translate) fn targets(&self) -> &[u64] {
        &self.targets
    }
}
