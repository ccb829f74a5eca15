//! The code cache of an address space: blocks, links between them, and the indirect-branch lookup.

mod indirect;
mod invalidation;
mod remains;
mod units;

use super::address_field::AddressField;
use super::block::{
    self, Block, BlockOptions, Fetch, InstructionState, NextIp, SpilledRegisters, TranslationEntry,
};
use super::cache_item::{CacheItem, IndirectEntry, TrapCause};
use super::event::NO_OUTCOMES;
use super::interception::Interception;
use super::layout::{self, REACH};
use super::memory::SharedMemory;
use super::staged::{Staged, Unstaged};
use super::stored::placed::PlacedUnit;
use super::watched::WatchedFunctions;
use crate::{PAGE, RecordOptions};
use backtrail_bundle::versions::Fragment;
pub(super) use remains::{CacheRemains, RemainingBlock};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// The maximum size of a block.
const MAX_BLOCK: u64 = 1 << 14;
/// The allowed size of the used part of a slab.
const ROOM: RangeInclusive<u64> = RecordOptions::CACHE;
const _: () = assert!(4 * MAX_BLOCK <= *ROOM.start() && *ROOM.end() <= layout::SLAB_SIZE);
/// The number of likely successors that are translated together with a block.
const LOOKAHEAD: usize = 4;

/// A contiguous part of the cache.
#[derive(Debug)]
struct CacheSlab {
    address: u64,
    memory: SharedMemory,
    used: u64,
    /// The offsets of the fields of blocks that depend on addresses, in the order of the blocks.
    fields: Vec<(u32, AddressField)>,
}

impl CacheSlab {
    fn reaches(&self, ip: u64) -> bool {
        self.address.abs_diff(ip) < REACH && (self.address + layout::SLAB_SIZE).abs_diff(ip) < REACH
    }

    fn contains(&self, address: u64) -> bool {
        (self.address..self.address + layout::SLAB_SIZE).contains(&address)
    }
}

/// The code cache.
#[derive(Debug)]
pub(super) struct Cache {
    options: BlockOptions,
    /// The functions whose calls are logged, if any are to be.
    pub(super) watched: Option<WatchedFunctions>,
    /// The number of bytes that may be used in each slab.
    room: u64,
    tables: SharedMemory,
    slabs: Vec<CacheSlab>,
    blocks: FxHashMap<u64, u64>,
    items: BTreeMap<u64, CacheItem>,
    indirect_entries: FxHashMap<u64, IndirectEntry>,
    /// Jumps to a program address, translated or not: the address of the displacement, and its
    /// original target.
    incoming: FxHashMap<u64, Vec<(u64, u64)>>,
    traps: FxHashMap<u64, TrapCause>,
    /// The number of changes to translated code.
    version: u32,
    /// The code of invalidated blocks, with its version.
    old_code: Vec<Fragment>,
    /// Pages whose code has changed.
    changed: BTreeSet<u64>,
    /// Block addresses by the program pages that they were translated from.
    pages: BTreeMap<u64, Vec<u64>>,
    /// Stored translations in the cache.
    placed: Vec<PlacedUnit>,
    /// The initial values of the entries in the first and the second table.
    first_miss: u64,
    second_miss: u64,
}

impl Cache {
    /// Builds an empty cache. `tables` has [`layout::TABLES_SIZE`] zero bytes. At most `room` bytes
    /// of each slab are used.
    pub(super) fn new(tables: SharedMemory, options: BlockOptions, room: u64) -> Self {
        tables.write(layout::BY_ARGUMENT - layout::TABLES, &Interception::by_argument());
        let odd: Vec<u8> = (0..layout::ODD_SIZE).map(|byte| (byte & 1) as u8).collect();
        tables.write(layout::ODD - layout::TABLES, &odd);
        Self {
            options,
            watched: None,
            room: room.clamp(*ROOM.start(), *ROOM.end()),
            tables,
            slabs: Vec::new(),
            blocks: FxHashMap::default(),
            items: BTreeMap::new(),
            indirect_entries: FxHashMap::default(),
            incoming: FxHashMap::default(),
            traps: FxHashMap::default(),
            version: 0,
            old_code: Vec::new(),
            changed: BTreeSet::new(),
            pages: BTreeMap::new(),
            placed: Vec::new(),
            first_miss: 0,
            second_miss: 0,
        }
    }

    /// Sets which system calls of a number the recorder makes itself.
    pub(super) fn intercept(&mut self, number: libc::c_long, calls: Interception) {
        let at = layout::INTERCEPTED - layout::TABLES + (number as u64 & 0xffff);
        self.tables.write(at, &[calls as u8]);
    }

    /// Intercepts every system call.
    pub(super) fn intercept_all(&mut self) {
        let all = vec![Interception::Always as u8; layout::INTERCEPTED_SIZE as usize];
        self.tables.write(layout::INTERCEPTED - layout::TABLES, &all);
    }

    /// Returns whether a slab with room is in reach of the code at `ip`.
    pub(super) fn has_room(&self, ip: u64) -> bool {
        self.slab(ip).is_some()
    }

    /// Returns whether all slabs in reach of the code at `ip` are full, so that a flush would help.
    pub(super) fn is_full(&self, ip: u64) -> bool {
        !self.has_room(ip) && self.slabs.iter().any(|slab| slab.reaches(ip))
    }

    /// Removes all blocks, but keeps the old code of pages that have changed or for which
    /// `may_change` is true. No thread may be in the cache.
    pub(super) fn flush(&mut self, may_change: impl Fn(u64) -> bool) {
        self.old_code = self.fragments(&may_change);
        let changing = self.pages.keys().copied().filter(|page| may_change(page * PAGE));
        self.changed.extend(changing);
        self.blocks.clear();
        self.items.clear();
        self.indirect_entries.clear();
        self.incoming.clear();
        self.traps.clear();
        self.pages.clear();
        self.placed.clear();
        for slab in &mut self.slabs {
            slab.used = 0;
            slab.fields.clear();
        }
        self.write_miss_stubs();
    }

    fn slab(&self, ip: u64) -> Option<usize> {
        let room = |slab: &CacheSlab| slab.used + MAX_BLOCK <= self.room;
        self.slabs.iter().position(|slab| slab.reaches(ip) && room(slab))
    }

    /// Adds a slab of [`layout::SLAB_SIZE`] bytes, mapped at `address` in the program.
    pub(super) fn add_slab(&mut self, address: u64, memory: SharedMemory) {
        self.slabs.push(CacheSlab {
            address,
            memory,
            used: 0,
            fields: Vec::new(),
        });
        if self.second_miss == 0 {
            self.write_miss_stubs();
        }
    }

    /// Removes a slab. The cache must be flushed before it is used again.
    pub(super) fn remove_slab(&mut self, address: u64) {
        self.slabs.retain(|slab| slab.address != address);
        if self.slabs.is_empty() {
            (self.first_miss, self.second_miss) = (0, 0);
        }
    }

    /// Copies the cache into other memory: lookup tables, and one empty slab for each existing
    /// slab.
    pub(super) fn copy(&self, tables: SharedMemory, slabs: Vec<SharedMemory>) -> Self {
        tables.write(0, &self.tables.bytes(layout::TABLES_SIZE));
        let slabs = self
            .slabs
            .iter()
            .zip(slabs)
            .map(|(old, memory)| {
                memory.write(0, &old.memory.bytes(old.used));
                CacheSlab {
                    address: old.address,
                    memory,
                    used: old.used,
                    fields: old.fields.clone(),
                }
            })
            .collect();
        Self {
            options: self.options,
            watched: self.watched.clone(),
            room: self.room,
            tables,
            slabs,
            blocks: self.blocks.clone(),
            items: self.items.clone(),
            indirect_entries: self.indirect_entries.clone(),
            incoming: self.incoming.clone(),
            traps: self.traps.clone(),
            version: self.version,
            old_code: self.old_code.clone(),
            changed: self.changed.clone(),
            pages: self.pages.clone(),
            placed: self.placed.clone(),
            first_miss: self.first_miss,
            second_miss: self.second_miss,
        }
    }

    /// Returns the start and the size of every slab.
    pub(super) fn areas(&self) -> impl Iterator<Item = (u64, u64)> {
        self.slabs.iter().map(|slab| (slab.address, layout::SLAB_SIZE))
    }

    /// Writes code to a slab, and returns its address.
    fn emit(&mut self, slab: usize, code: &[u8], fields: &[(u32, AddressField)]) -> Option<u64> {
        let slab = self.slabs.get_mut(slab)?;
        let offset = slab.used;
        slab.memory.write(offset, code);
        let placed = fields.iter().map(|(at, field)| (offset as u32 + at, *field));
        slab.fields.extend(placed);
        slab.used = (offset + code.len() as u64).next_multiple_of(16);
        Some(slab.address + offset)
    }

    /// Returns the cache address of the block at `ip`.
    fn block(&self, ip: u64) -> Option<u64> {
        let own = self.blocks.get(&ip).copied();
        own.or_else(|| self.placed.iter().find_map(|unit| unit.block(ip)))
    }

    /// Returns the item that begins at or before a cache address, with its start.
    fn item(&self, address: u64) -> Option<(u64, Cow<'_, CacheItem>)> {
        if let Some(unit) = self.placed.iter().find(|unit| unit.contains(address)) {
            let (at, item) = unit.item(address)?;
            return Some((at, Cow::Owned(item)));
        }
        let (at, item) = self.items.range(..=address).next_back()?;
        Some((*at, Cow::Borrowed(item)))
    }

    /// Returns the jumps that target `ip`: the address of the displacement, and its original
    /// target.
    fn exits_to(&self, ip: u64) -> Vec<(u64, u64)> {
        let own = self.incoming.get(&ip).into_iter().flatten().copied();
        let placed = self.placed.iter().flat_map(|unit| unit.exits_to(ip));
        own.chain(placed).collect()
    }

    /// Returns the cache address of the block at `ip`. Translates it if needed, with its likely
    /// successors.
    ///
    /// Returns `None` if no slab is in reach.
    pub(super) fn lookup_or_translate(&mut self, ip: u64, fetch: &mut Fetch<'_>) -> Option<u64> {
        if let Some(found) = self.block(ip) {
            return Some(found);
        }
        let mut wanted = std::collections::VecDeque::from([ip]);
        let mut made = 0;
        while let Some(next) = wanted.pop_front() {
            if made > LOOKAHEAD {
                break;
            }
            if self.block(next).is_some() || self.slab(next).is_none() {
                continue;
            }
            wanted.extend(self.translate(next, self.options, fetch)?);
            made += 1;
        }
        self.block(ip)
    }

    /// Returns whether there is a block at `ip` that is not a superblock.
    pub(super) fn is_promotable(&self, ip: u64) -> bool {
        let item = self.block(ip).and_then(|at| self.item(at));
        item.is_some_and(|(_, item)| {
            matches!(
                *item,
                CacheItem::Block {
                    superblock: false,
                    ..
                }
            )
        })
    }

    /// Replaces the block at `ip` by a superblock, and links all jumps to it.
    pub(super) fn promote(&mut self, ip: u64, fetch: &mut Fetch<'_>) {
        if !self.is_promotable(ip) {
            return;
        }
        let options = BlockOptions {
            superblock: true,
            ..self.options
        };
        if self.translate(ip, options, fetch).is_none() {
            return;
        }
        if let (Some(IndirectEntry { first, second }), Some(at)) = (self.indirect_entry(ip), self.block(ip)) {
            for entry in [first, second] {
                if let Some(CacheItem::IndirectEntry { len, .. }) =
                    self.item(entry).map(|(_, item)| item).as_deref()
                {
                    // The last four bytes are the displacement of the jump.
                    self.patch_jump(entry + u64::from(*len) - 4, at);
                }
            }
        }
    }

    /// Returns the program address of the block that contains the cache address `address`.
    pub(super) fn block_containing(&self, address: u64) -> Option<u64> {
        match *self.item(address)?.1 {
            CacheItem::Block { ip, .. } => Some(ip),
            _ => None,
        }
    }

    fn translate(&mut self, ip: u64, options: BlockOptions, fetch: &mut Fetch<'_>) -> Option<Vec<u64>> {
        let index = self.slab(ip)?;
        let at = {
            let slab = self.slabs.get(index)?;
            slab.address + slab.used
        };
        let mut min_version = None;
        let watched = self.watched.as_ref();
        let mut block = block::translate(ip, at, options, watched, fetch);
        if self.version != 0 && block.source.pages().any(|page| self.changed.contains(&page)) {
            min_version = NonZeroU32::new(self.version);
            block = block::translate(
                ip,
                at,
                BlockOptions {
                    min_version,
                    ..options
                },
                watched,
                fetch,
            );
        }
        let Block {
            code,
            traps,
            source,
            successors,
            fields,
            depends_on_place,
            ..
        } = block;
        self.emit(index, &code, &fields)?;
        let before = self.block(ip);
        self.blocks.insert(ip, at);
        for (offset, trap) in traps {
            let trapped = at + u64::from(offset);
            let cause = TrapCause::of(trap, at, 0);
            if let TrapCause::Exit { site, target } = cause {
                self.incoming.entry(target).or_default().push((site, trapped));
                if let Some(to) = self.block(target) {
                    self.patch_jump(site, to);
                }
            }
            self.traps.insert(trapped, cause);
        }
        let len = code.len() as u32;
        for page in source.pages() {
            let ips = self.pages.entry(page).or_default();
            if ips.last() != Some(&ip) {
                ips.push(ip);
            }
        }
        self.items.insert(
            at,
            CacheItem::Block {
                ip,
                version: self.version,
                min_version,
                superblock: options.superblock,
                before,
                source,
                len,
                is_movable: !depends_on_place,
            },
        );
        // Link the jumps that target this block.
        for (site, _) in self.exits_to(ip) {
            self.patch_jump(site, at);
        }
        Some(successors)
    }

    /// Patches the jump with its displacement at `site` to reach `to`, if that is in reach.
    fn patch_jump(&self, site: u64, to: u64) {
        let distance = to.wrapping_sub(site + 4) as i64;
        if let (Ok(distance), Some(slab)) = (
            i32::try_from(distance),
            self.slabs.iter().find(|slab| slab.contains(site)),
        ) {
            slab.memory.store_half(site - slab.address, distance as u32);
        }
    }

    /// Links an exit directly to its translated target.
    pub(super) fn link(&mut self, site: u64, target: u64) {
        if let Some(to) = self.block(target) {
            self.patch_jump(site, to);
        }
    }

    /// Returns the reason for the `int3` at `address`.
    pub(super) fn cause(&self, address: u64) -> Option<TrapCause> {
        let own = self.traps.get(&address).copied();
        own.or_else(|| self.placed.iter().find_map(|unit| unit.cause(address)))
    }

    /// Returns the program address of the instruction at a cache address.
    pub(super) fn program_address(&self, address: u64) -> Option<u64> {
        self.slabs.iter().find(|slab| slab.contains(address))?;
        self.translation_at(address).map(|entry| entry.ip)
    }

    /// Returns [`Self::program_address`] for the low half of a cache address.
    pub(super) fn program_address_of_low_half(&self, low: u32) -> Option<u64> {
        self.slabs.iter().find_map(|slab| {
            let offset = low.wrapping_sub(slab.address as u32);
            let address = slab.address + u64::from(offset);
            slab.contains(address)
                .then(|| self.program_address(address))
                .flatten()
        })
    }

    /// Returns the program state of a thread at `address`, or `None` outside the cache.
    pub(super) fn translation_at(&self, address: u64) -> Option<TranslationEntry> {
        let (at, item) = self.item(address)?;
        let offset = (address - at) as u32;
        let arriving = |state, ip| TranslationEntry {
            offset,
            ip,
            state,
            outcomes: NO_OUTCOMES,
            logged_ip: ip,
            staged: Staged::default(),
            unstaged: Unstaged::Nothing,
        };
        match item.as_ref() {
            CacheItem::Block {
                ip,
                min_version,
                superblock,
                source,
                len,
                ..
            } => {
                if offset >= *len {
                    return None;
                }
                let mut again = |from: u64, out: &mut [u8]| source.read(from, out);
                let block = block::translate(
                    *ip,
                    at,
                    BlockOptions {
                        entries: true,
                        min_version: *min_version,
                        superblock: *superblock,
                        ..self.options
                    },
                    self.watched.as_ref(),
                    &mut again,
                );
                block.entry_at(offset).copied()
            }
            CacheItem::IndirectEntry { ip, clean, len } if offset < *len => Some(if offset >= *clean {
                arriving(InstructionState::Before(SpilledRegisters::NONE), *ip)
            } else {
                arriving(
                    InstructionState::Done {
                        spilled: SpilledRegisters::ALL,
                        event: None,
                        next: NextIp::InRax,
                    },
                    *ip,
                )
            }),
            CacheItem::MissStub => Some(arriving(
                InstructionState::Done {
                    spilled: SpilledRegisters::ALL,
                    event: None,
                    next: NextIp::InRax,
                },
                0,
            )),
            CacheItem::IndirectEntry { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
