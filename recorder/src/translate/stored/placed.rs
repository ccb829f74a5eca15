//! A unit of stored translations in the cache of a process.

use super::unit::{ENTRY_STRIDE, IndexedUnit, SECOND_ENTRY, UnitBlock};
use crate::translate::block::SourceBytes;
use crate::translate::cache_item::{CacheItem, IndirectEntry, TrapCause};
use crate::translate::entry_code::{EntryCode, EntryTable};
use std::ops::Range;
use std::sync::Arc;

/// A unit whose mapping begins at one address, and its code at another.
#[derive(Clone, Debug)]
pub(in crate::translate) struct PlacedUnit {
    unit: Arc<IndexedUnit>,
    ip: u64,
    at: u64,
}

impl PlacedUnit {
    pub(in crate::translate) fn new(unit: Arc<IndexedUnit>, ip: u64, at: u64) -> Self {
        Self { unit, ip, at }
    }

    /// Returns the start of the mapping.
    pub(in crate::translate) fn ip(&self) -> u64 {
        self.ip
    }

    /// Returns the unit.
    pub(in crate::translate) fn unit(&self) -> &IndexedUnit {
        &self.unit
    }

    /// Returns whether the code contains a cache address.
    pub(in crate::translate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.at) < self.unit.code_size()
    }

    /// Returns the offset of a cache address in the code.
    fn offset(&self, address: u64) -> Option<u32> {
        let offset = u32::try_from(address.checked_sub(self.at)?).ok()?;
        self.contains(address).then_some(offset)
    }

    /// Returns the offset of an address of the program in the mapping.
    fn source_offset(&self, ip: u64) -> Option<u32> {
        u32::try_from(ip.checked_sub(self.ip)?).ok()
    }

    /// Returns the cache address of the block at `ip`.
    pub(in crate::translate) fn block(&self, ip: u64) -> Option<u64> {
        let block = self.unit.block(self.source_offset(ip)?)?;
        Some(self.at + u64::from(block.at))
    }

    /// Returns the item that begins at or before a cache address, with its start.
    pub(in crate::translate) fn item(&self, address: u64) -> Option<(u64, CacheItem)> {
        let offset = self.offset(address)?;
        match self.unit.block_at(offset) {
            Some(block) => Some(self.block_item(block)),
            None => self.entry_item(offset),
        }
    }

    fn block_item(&self, block: &UnitBlock) -> (u64, CacheItem) {
        let mut source = SourceBytes::default();
        for (start, len) in self.unit.runs_of(block) {
            let mut bytes = vec![0; *len as usize];
            let read = self.unit.source.read(u64::from(*start), &mut bytes);
            bytes.truncate(read);
            source.push_run(self.ip + u64::from(*start), &bytes);
        }
        let item = CacheItem::Block {
            ip: self.ip + u64::from(block.ip),
            version: 0,
            min_version: None,
            superblock: block.superblock,
            before: None,
            source,
            len: block.len,
            // The fields are those of the unit.
            is_movable: false,
        };
        (self.at + u64::from(block.at), item)
    }

    fn entry_item(&self, offset: u32) -> Option<(u64, CacheItem)> {
        let from = u64::from(offset.checked_sub(self.unit.entries)?);
        let target = self.unit.targets.get((from / ENTRY_STRIDE) as usize)?;
        let is_second = from % ENTRY_STRIDE >= SECOND_ENTRY;
        let table = if is_second {
            EntryTable::Second
        } else {
            EntryTable::First
        };
        let code = EntryCode::new(0, table);
        let start = u64::from(offset) - from % SECOND_ENTRY;
        let item = CacheItem::IndirectEntry {
            ip: self.ip + u64::from(*target),
            clean: code.clean,
            len: code.code.len() as u32,
        };
        Some((self.at + start, item))
    }

    /// Returns all blocks and entries with their cache addresses.
    pub(in crate::translate) fn items(&self) -> impl Iterator<Item = (u64, CacheItem)> + '_ {
        let blocks = self.unit.blocks.iter().map(|block| self.block_item(block));
        let starts = (0..self.unit.targets.len() as u64).flat_map(|index| {
            let first = u64::from(self.unit.entries) + index * ENTRY_STRIDE;
            [first, first + SECOND_ENTRY]
        });
        blocks.chain(starts.filter_map(|start| self.entry_item(start as u32)))
    }

    /// Returns the reason for the trap at a cache address.
    pub(in crate::translate) fn cause(&self, address: u64) -> Option<TrapCause> {
        let offset = self.offset(address)?;
        if offset < self.unit.entries {
            return Some(TrapCause::of(self.unit.trap_at(offset)?, self.at, self.ip));
        }
        let from = u64::from(offset - self.unit.entries) % ENTRY_STRIDE;
        let miss = EntryCode::new(0, EntryTable::Second).miss? as u64;
        (from == SECOND_ENTRY + miss).then_some(TrapCause::Miss)
    }

    /// Returns all traps with their cache addresses.
    pub(in crate::translate) fn causes(&self) -> impl Iterator<Item = (u64, TrapCause)> + '_ {
        let of_blocks = self.unit.traps.iter();
        let of_blocks =
            of_blocks.map(|(at, trap)| (self.at + u64::from(*at), TrapCause::of(*trap, self.at, self.ip)));
        let miss = EntryCode::new(0, EntryTable::Second).miss.unwrap_or(0) as u64;
        let of_entries = self
            .indirect_entries()
            .map(move |(_, entry)| (entry.second + miss, TrapCause::Miss));
        of_blocks.chain(of_entries)
    }

    /// Returns the jumps that target `ip`: the address of the displacement, and its original
    /// target.
    pub(in crate::translate) fn exits_to(&self, ip: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let exits = self.unit.exits_to(ip.wrapping_sub(self.ip));
        exits.map(|(site, trap)| (self.at + u64::from(site), self.at + u64::from(trap)))
    }

    /// Returns the entries of an indirect-branch target.
    pub(in crate::translate) fn indirect_entry(&self, ip: u64) -> Option<IndirectEntry> {
        let index = self.unit.targets.binary_search(&self.source_offset(ip)?).ok()?;
        Some(self.entry(index))
    }

    fn entry(&self, index: usize) -> IndirectEntry {
        let first = self.at + u64::from(self.unit.entries) + index as u64 * ENTRY_STRIDE;
        IndirectEntry {
            first,
            second: first + SECOND_ENTRY,
        }
    }

    /// Returns all indirect-branch targets with their entries.
    pub(in crate::translate) fn indirect_entries(&self) -> impl Iterator<Item = (u64, IndirectEntry)> + '_ {
        let targets = self.unit.targets.iter().enumerate();
        targets.map(|(index, target)| (self.ip + u64::from(*target), self.entry(index)))
    }

    /// Returns whether the blocks were translated from code in `range`.
    pub(in crate::translate) fn has_code_in(&self, range: &Range<u64>) -> bool {
        let start = range.start.saturating_sub(self.ip);
        let end = range.end.saturating_sub(self.ip);
        start < end && self.unit.source.overlaps(&(start..end))
    }
}
