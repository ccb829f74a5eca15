//! Builds units from the cache of an ended process.

use super::placed::PlacedUnit;
use super::unit::{CodeUnit, ENTRY_STRIDE, SECOND_ENTRY, Source, UnitBlock};
use crate::translate::block::{self, BlockOptions, BlockTrap};
use crate::translate::cache::{CacheRemains, RemainingBlock};
use crate::translate::cache_item::TrapCause;
use crate::translate::entry_code::{EntryCode, EntryTable};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Builds a unit from the blocks of the code in `range`, and from the stored translations that the
/// cache had of it. `None`: there are no blocks, or their code has changed.
pub(in crate::translate) fn harvest(remains: &CacheRemains, range: &Range<u64>) -> Option<CodeUnit> {
    let mut harvest = Harvest {
        start: range.start,
        ..Harvest::default()
    };
    let own = remains.blocks(range);
    let placed = remains.placed(range.start);
    for block in &own {
        harvest.add(block, remains)?;
    }
    if let Some(placed) = placed {
        harvest.add_placed(placed)?;
    }
    harvest.link();
    let of_placed = placed.into_iter().flat_map(|unit| unit.indirect_entries());
    let targets = remains.targets().iter().copied();
    harvest.add_entries(targets.chain(of_placed.map(|(target, _)| target)))?;
    harvest.finish()
}

/// Returns whether the translator writes the code of each block, at addresses other than those of
/// the process. Development builds check this for all programs.
pub(super) fn is_what_is_translated(unit: &CodeUnit, options: BlockOptions) -> bool {
    /// Where the mapping and the code begin.
    const PLACE: (u64, u64) = (0x6543_2100_0000, 0x6543_7654_3210);
    let (ip, at) = PLACE;
    let mut code = unit.code.clone();
    let mut fields = unit.fields.iter();
    if fields.any(|(offset, field)| field.shift(&mut code, *offset as usize, ip, at).is_none()) {
        return false;
    }
    let mut fetch = |from: u64, out: &mut [u8]| unit.source.read(from.wrapping_sub(ip), out);
    unit.blocks.iter().all(|block| {
        let options = BlockOptions {
            superblock: block.superblock,
            ..options
        };
        let (start, from) = (ip + u64::from(block.ip), at + u64::from(block.at));
        let mut fresh = block::translate(start, from, options, None, &mut fetch);
        let range = block.at as usize..(block.at + block.len) as usize;
        let mut stored = code.get(range).unwrap_or_default().to_vec();
        // Exits are linked.
        for (_, trap) in &fresh.traps {
            if let BlockTrap::Exit { site, .. } = trap {
                patch(&mut fresh.code, *site, 0);
                patch(&mut stored, *site, 0);
            }
        }
        stored == fresh.code
    })
}

#[derive(Default)]
struct Harvest {
    /// The start of the mapping.
    start: u64,
    unit: CodeUnit,
    /// The index of each block.
    by_ip: FxHashMap<u32, u32>,
    /// Program code by its start.
    source: BTreeMap<u32, Vec<u8>>,
}

impl Harvest {
    /// Returns the offset of an address in the mapping, which may be outside it.
    fn offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start)
    }

    /// Returns the offset of the next block in the code.
    fn next(&mut self) -> Option<u32> {
        let at = self.unit.code.len().next_multiple_of(16);
        self.unit.code.resize(at, TRAP);
        u32::try_from(at).ok()
    }

    fn add(&mut self, block: &RemainingBlock<'_>, remains: &CacheRemains) -> Option<()> {
        let at = self.next()?;
        let ip = u32::try_from(self.offset(block.ip)).ok()?;
        let mut code = block.code.clone();
        let (program, moved) = (self.start.wrapping_neg(), u64::from(at).wrapping_sub(block.at));
        let mut fields = block.fields.iter();
        // An operand may be too far away for a unit.
        if fields.any(|(offset, field)| field.shift(&mut code, *offset as usize, program, moved).is_none()) {
            return Some(());
        }
        let fields = block.fields.iter().map(|(offset, field)| (at + offset, *field));
        self.unit.fields.extend(fields);
        let first = self.unit.runs.len() as u32;
        for (start, run) in block.source.runs() {
            let start = u32::try_from(self.offset(start)).ok()?;
            self.unit.runs.push((start, run.len() as u32));
            self.add_source(start, run)?;
        }
        let len = code.len() as u32;
        for (trapped, cause) in remains.traps(block.at..block.at + u64::from(len)) {
            let trap = self.trap(cause, block.at, at)?;
            self.unit.traps.push((at + (trapped - block.at) as u32, trap));
        }
        self.push(UnitBlock {
            at,
            len,
            ip,
            superblock: block.superblock,
            runs: (first, self.unit.runs.len() as u32 - first),
        });
        self.unit.code.extend_from_slice(&code);
        Some(())
    }

    fn push(&mut self, block: UnitBlock) {
        self.by_ip.insert(block.ip, self.unit.blocks.len() as u32);
        self.unit.blocks.push(block);
    }

    /// Adds the blocks of stored translations that no other block has replaced.
    fn add_placed(&mut self, placed: &PlacedUnit) -> Option<()> {
        let old = placed.unit();
        let (mut fields, mut traps) = (old.fields.iter().peekable(), old.traps.iter().peekable());
        for block in &old.blocks {
            let end = block.at + block.len;
            let is_before = |at: u32| at < block.at;
            while fields.next_if(|(at, _)| is_before(*at)).is_some() {}
            while traps.next_if(|(at, _)| is_before(*at)).is_some() {}
            if self.by_ip.contains_key(&block.ip) {
                continue;
            }
            let at = self.next()?;
            let mut code = old.code.get(block.at as usize..end as usize)?.to_vec();
            let moved = u64::from(at).wrapping_sub(u64::from(block.at));
            while let Some((field_at, field)) = fields.next_if(|(at, _)| *at < end) {
                let offset = field_at - block.at;
                field.shift(&mut code, offset as usize, 0, moved)?;
                self.unit.fields.push((at + offset, *field));
            }
            while let Some((trapped, trap)) = traps.next_if(|(at, _)| *at < end) {
                let mut trap = *trap;
                if let BlockTrap::Exit { site, .. } = &mut trap {
                    *site = site.checked_sub(block.at)? + at;
                }
                self.unit.traps.push((trapped - block.at + at, trap));
            }
            let first = self.unit.runs.len() as u32;
            self.unit.runs.extend_from_slice(old.runs_of(block));
            self.push(UnitBlock {
                at,
                runs: (first, block.runs.1),
                ..*block
            });
            self.unit.code.extend_from_slice(&code);
        }
        for (start, bytes) in old.source.ranges() {
            self.add_source(start, bytes)?;
        }
        Some(())
    }

    /// Adds program code. `None`: it differs from other code at this address.
    fn add_source(&mut self, start: u32, bytes: &[u8]) -> Option<()> {
        let known = self.source.entry(start).or_default();
        let is_same = known.iter().zip(bytes).all(|(one, other)| one == other);
        if known.len() < bytes.len() {
            *known = bytes.to_vec();
        }
        is_same.then_some(())
    }

    /// Returns a trap of the block at `from`, which is at `to` in the unit.
    fn trap(&self, cause: TrapCause, from: u64, to: u32) -> Option<BlockTrap> {
        let offset = |address| self.offset(address);
        Some(match cause {
            TrapCause::Exit { site, target } => BlockTrap::Exit {
                site: u32::try_from(site.checked_sub(from)?).ok()?.checked_add(to)?,
                target: offset(target),
            },
            TrapCause::InterceptedSyscall { ip, next } => BlockTrap::InterceptedSyscall {
                ip: offset(ip),
                next: offset(next),
            },
            TrapCause::Native { ip, outcomes } => BlockTrap::Native {
                ip: offset(ip),
                outcomes,
            },
            TrapCause::StoredX87Pointer { ip } => BlockTrap::StoredX87Pointer { ip: offset(ip) },
            TrapCause::SetsTrapFlag { ip, outcomes } => BlockTrap::SetsTrapFlag {
                ip: offset(ip),
                outcomes,
            },
            TrapCause::Predicted { ip } => BlockTrap::Predicted { ip: offset(ip) },
            TrapCause::Masked { ip, slot } => BlockTrap::Masked { ip: offset(ip), slot },
            TrapCause::StaleVersion { .. } | TrapCause::Miss => return None,
        })
    }

    /// Links the exits to blocks of the unit, and all others to their traps.
    fn link(&mut self) {
        for (trapped, trap) in &self.unit.traps {
            let BlockTrap::Exit { site, target } = trap else {
                continue;
            };
            let target = u32::try_from(*target)
                .ok()
                .and_then(|target| self.by_ip.get(&target));
            let block = target.and_then(|index| self.unit.blocks.get(*index as usize));
            let to = block.map_or(*trapped, |block| block.at);
            patch(&mut self.unit.code, *site, to);
        }
    }

    /// Adds entries for the targets of indirect branches that have a block.
    fn add_entries(&mut self, targets: impl Iterator<Item = u64>) -> Option<()> {
        let offsets = targets.filter_map(|target| u32::try_from(self.offset(target)).ok());
        let mut targets: Vec<u32> = offsets.filter(|target| self.by_ip.contains_key(target)).collect();
        targets.sort_unstable();
        targets.dedup();
        self.unit.entries = self.next()?;
        for target in &targets {
            let index = *self.by_ip.get(target)? as usize;
            let block = self.unit.blocks.get(index)?.at;
            for table in [EntryTable::First, EntryTable::Second] {
                let start = self.unit.code.len();
                let entry = EntryCode::new(u64::from(*target), table);
                let fields = entry.code.fields.iter();
                let fields = fields.map(|(at, field)| (start as u32 + at, *field));
                self.unit.fields.extend(fields);
                self.unit.code.extend_from_slice(&entry.code.code);
                self.unit.code.resize(start + SECOND_ENTRY as usize, TRAP);
                patch(&mut self.unit.code, (start + entry.site) as u32, block);
            }
        }
        self.unit.targets = targets;
        Some(())
    }

    fn finish(mut self) -> Option<CodeUnit> {
        if self.unit.blocks.is_empty() {
            return None;
        }
        self.unit.source = merged(self.source)?;
        self.unit.is_consistent().then_some(self.unit)
    }
}

const _: () = assert!(2 * SECOND_ENTRY == ENTRY_STRIDE);
/// `int3`
const TRAP: u8 = 0xcc;

/// Lets the jump with its displacement at `site` reach `to`.
fn patch(code: &mut [u8], site: u32, to: u32) {
    let distance = to.wrapping_sub(site + 4);
    if let Some(place) = code.get_mut(site as usize..).and_then(<[u8]>::first_chunk_mut) {
        *place = distance.to_le_bytes();
    }
}

/// Merges overlapping and adjacent ranges. `None`: they have different bytes at one address.
fn merged(ranges: BTreeMap<u32, Vec<u8>>) -> Option<Source> {
    let mut source = Source::default();
    for (start, bytes) in ranges {
        let from = match source.ranges.as_slice() {
            [.., (_, before), _] => *before,
            _ => 0,
        };
        let reached = source.ranges.last_mut().map(|(first, end)| {
            let size = *end - from;
            (*first + size, end)
        });
        match reached {
            Some((reached, end)) if start <= reached => {
                let overlap = ((reached - start) as usize).min(bytes.len());
                let known_from = source.bytes.len() - (reached - start) as usize;
                let (again, new) = bytes.split_at(overlap);
                if source.bytes.get(known_from..known_from + overlap)? != again {
                    return None;
                }
                source.bytes.extend_from_slice(new);
                *end = source.bytes.len() as u32;
            }
            _ => {
                source.bytes.extend_from_slice(&bytes);
                source.ranges.push((start, source.bytes.len() as u32));
            }
        }
    }
    Some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_code_is_merged_unless_it_differs() {
        let ranges = |list: &[(u32, &[u8])]| {
            let list = list.iter().map(|(start, bytes)| (*start, bytes.to_vec()));
            merged(list.collect())
        };
        let source = ranges(&[(4, &[1, 2, 3]), (5, &[2]), (6, &[3, 4]), (8, &[5]), (20, &[6])]).unwrap();
        assert_eq!(source.ranges, [(4, 5), (20, 6)]);
        assert_eq!(source.bytes, [1, 2, 3, 4, 5, 6]);
        let mut out = [0; 4];
        assert_eq!((source.read(7, &mut out), out), (2, [4, 5, 0, 0]));
        assert_eq!(
            (
                source.read(20, &mut out),
                source.read(9, &mut out),
                source.read(3, &mut out)
            ),
            (1, 0, 0)
        );
        assert!(source.overlaps(&(8..9)) && !source.overlaps(&(9..20)));
        assert!(ranges(&[(4, &[1, 2, 3]), (5, &[9])]).is_none());
    }
}
