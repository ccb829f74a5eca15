//! A unit of stored translations.

use crate::translate::address_field::AddressField;
use crate::translate::block::BlockTrap;
use std::ops::{Deref, Range};

/// The translated code of one executable mapping of a file.
///
/// Addresses of the program are offsets from the start of the mapping, in wrapping arithmetic.
/// Addresses of the cache are offsets into [`Self::code`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::translate) struct CodeUnit {
    /// The code: blocks, then the entries of indirect branches. The mapping and the code both begin
    /// at address 0.
    pub(super) code: Vec<u8>,
    /// The fields of the code that depend on addresses.
    pub(super) fields: Vec<(u32, AddressField)>,
    /// The program code that the blocks were translated from.
    pub(in crate::translate) source: Source,
    /// Ascending by offset in the code.
    pub(in crate::translate) blocks: Vec<UnitBlock>,
    /// Ranges of program code, as blocks refer to them: start and length.
    pub(super) runs: Vec<(u32, u32)>,
    /// Ascending by offset in the code.
    pub(super) traps: Vec<(u32, BlockTrap)>,
    /// The addresses with an entry for indirect branches, ascending.
    pub(super) targets: Vec<u32>,
    /// The offset of the first entry.
    pub(super) entries: u32,
}

/// A block of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::translate) struct UnitBlock {
    /// The offset in the code.
    pub(in crate::translate) at: u32,
    pub(in crate::translate) len: u32,
    pub(in crate::translate) ip: u32,
    pub(in crate::translate) superblock: bool,
    /// The index of its first run, and the number of its runs.
    pub(super) runs: (u32, u32),
}

/// Program code, as ranges of a mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::translate) struct Source {
    /// The start of each range, and the offset of its end in `bytes`. Ascending, and not adjacent.
    pub(super) ranges: Vec<(u32, u32)>,
    pub(super) bytes: Vec<u8>,
}

impl Source {
    /// Returns the ranges with their start.
    pub(in crate::translate) fn ranges(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut from = 0;
        self.ranges.iter().map(move |(start, end)| {
            let range = std::mem::replace(&mut from, *end) as usize..*end as usize;
            (*start, self.bytes.get(range).unwrap_or_default())
        })
    }

    /// Copies the bytes from an address to the end of its range, and returns their number.
    pub(in crate::translate) fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let Ok(address) = u32::try_from(address) else {
            return 0;
        };
        let after = self.ranges.partition_point(|(start, _)| *start <= address);
        let Some(index) = after.checked_sub(1) else {
            return 0;
        };
        let from = index.checked_sub(1).and_then(|before| self.ranges.get(before));
        let from = from.map_or(0, |(_, end)| *end);
        let Some((start, end)) = self.ranges.get(index) else {
            return 0;
        };
        let from = from as usize + (address - start) as usize;
        let bytes = self.bytes.get(from..*end as usize).unwrap_or_default();
        let len = bytes.len().min(out.len());
        out.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        len
    }

    /// Returns whether a range contains code of these addresses.
    pub(in crate::translate) fn overlaps(&self, addresses: &Range<u64>) -> bool {
        self.ranges().any(|(start, bytes)| {
            let start = u64::from(start);
            start < addresses.end && addresses.start < start + bytes.len() as u64
        })
    }
}

impl CodeUnit {
    /// Returns the block that contains this offset of the code.
    pub(in crate::translate) fn block_at(&self, offset: u32) -> Option<&UnitBlock> {
        let after = self.blocks.partition_point(|block| block.at <= offset);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        (offset - block.at < block.len).then_some(block)
    }

    /// Returns the reason of the trap at this offset of the code.
    pub(in crate::translate) fn trap_at(&self, offset: u32) -> Option<BlockTrap> {
        let index = self.traps.binary_search_by_key(&offset, |(at, _)| *at).ok()?;
        self.traps.get(index).map(|(_, trap)| *trap)
    }

    /// Returns the ranges of program code of a block.
    pub(in crate::translate) fn runs_of(&self, block: &UnitBlock) -> &[(u32, u32)] {
        let (first, count) = (block.runs.0 as usize, block.runs.1 as usize);
        self.runs.get(first..first + count).unwrap_or_default()
    }

    /// Returns whether all parts refer to each other within bounds, as a unit from a file may not.
    pub(super) fn is_consistent(&self) -> bool {
        let code = self.code.len() as u64;
        let within = |at: u32, len: u64| u64::from(at) + len <= code;
        let mut end = 0;
        let blocks_are_apart = self.blocks.iter().all(|block| {
            let is_after = block.at >= end && block.at.is_multiple_of(16) && block.len > 0;
            end = block.at.saturating_add(block.len);
            is_after && within(block.at, block.len.into())
        });
        let mut bytes = 0;
        let mut reached = 0;
        let ranges_are_apart = self.source.ranges.iter().all(|(start, end)| {
            let len = end.checked_sub(std::mem::replace(&mut bytes, *end));
            let is_after = u64::from(*start) >= reached;
            reached = u64::from(*start) + u64::from(len.unwrap_or(0));
            is_after && len.is_some_and(|len| len > 0)
        });
        let runs_exist = self.blocks.iter().all(|block| {
            let last = u64::from(block.runs.0) + u64::from(block.runs.1);
            block.runs.1 > 0 && last <= self.runs.len() as u64
        });
        let mut byte = [0];
        let runs_are_code = self.runs.iter().all(|(start, len)| {
            let last = u64::from(*start) + u64::from(*len);
            *len > 0
                && self.source.read(u64::from(*start), &mut byte) == 1
                && self.source.read(last - 1, &mut byte) == 1
        });
        let sites_exist = self.traps.iter().all(|(at, trap)| {
            within(*at, 1)
                && match trap {
                    BlockTrap::Exit { site, .. } => site.is_multiple_of(4) && within(*site, 4),
                    _ => true,
                }
        });
        let entries = self.targets.len() as u64 * ENTRY_STRIDE;
        blocks_are_apart
            && ranges_are_apart
            && bytes as usize == self.source.bytes.len()
            && runs_exist
            && runs_are_code
            && sites_exist
            && self.traps.is_sorted_by(|(one, _), (other, _)| one < other)
            && self.targets.is_sorted_by(|one, other| one < other)
            && within(self.entries, entries)
            && self.entries >= end
            && self.entries.is_multiple_of(16)
    }
}

/// The room for the two entries of an indirect-branch target.
pub(in crate::translate) const ENTRY_STRIDE: u64 = 128;
/// The offset of the second entry from the first.
pub(in crate::translate) const SECOND_ENTRY: u64 = 64;

/// A unit with its indexes.
#[derive(Debug)]
pub(in crate::translate) struct IndexedUnit {
    unit: CodeUnit,
    /// The address and index of each block, ascending.
    by_ip: Vec<(u32, u32)>,
    /// The target, displacement and trap of each exit, ascending.
    exits: Vec<(u64, u32, u32)>,
}

impl Deref for IndexedUnit {
    type Target = CodeUnit;

    fn deref(&self) -> &CodeUnit {
        &self.unit
    }
}

impl IndexedUnit {
    /// Builds the indexes.
    pub(super) fn new(unit: CodeUnit) -> Self {
        let blocks = unit.blocks.iter().enumerate();
        let mut by_ip: Vec<_> = blocks.map(|(index, block)| (block.ip, index as u32)).collect();
        by_ip.sort_unstable();
        let traps = unit.traps.iter();
        let exits = traps.filter_map(|(at, trap)| match trap {
            BlockTrap::Exit { site, target } => Some((*target, *site, *at)),
            _ => None,
        });
        let mut exits: Vec<_> = exits.collect();
        exits.sort_unstable();
        Self { unit, by_ip, exits }
    }

    /// Returns the size of the code.
    pub(in crate::translate) fn code_size(&self) -> u64 {
        self.unit.code.len() as u64
    }

    /// Returns the block at this offset of the mapping.
    pub(in crate::translate) fn block(&self, ip: u32) -> Option<&UnitBlock> {
        let index = self.by_ip.binary_search_by_key(&ip, |(ip, _)| *ip).ok()?;
        let (_, block) = self.by_ip.get(index)?;
        self.unit.blocks.get(*block as usize)
    }

    /// Returns the exits to this offset of the mapping: the displacement and the trap.
    pub(in crate::translate) fn exits_to(&self, target: u64) -> impl Iterator<Item = (u32, u32)> + '_ {
        let first = self.exits.partition_point(|(other, ..)| *other < target);
        let found = self.exits.iter().skip(first);
        found
            .take_while(move |(other, ..)| *other == target)
            .map(|(_, site, trap)| (*site, *trap))
    }

    /// Returns the code for a mapping that begins at `ip`, and for the cache address `at`. `None`:
    /// an operand is out of reach.
    pub(in crate::translate) fn code_at(&self, ip: u64, at: u64) -> Option<Vec<u8>> {
        let mut code = self.unit.code.clone();
        for (offset, field) in &self.unit.fields {
            field.shift(&mut code, *offset as usize, ip, at)?;
        }
        Some(code)
    }
}
