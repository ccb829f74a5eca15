//! The indirect-branch lookup: two hash tables of entries, which check the target and jump to its
//! block.

use super::{Cache, CacheItem, IndirectEntry, TrapCause};
use crate::translate::assembler::Assembler;
use crate::translate::entry_code::{EntryCode, EntryTable};
use crate::translate::layout;

impl Cache {
    pub(super) fn write_miss_stubs(&mut self) {
        let mut code = Assembler::default();
        code.jump_by_table(layout::SECOND);
        while !code.len().is_multiple_of(16) {
            code.trap();
        }
        let miss = code.len() as u64;
        code.padded_trap();
        let Some(at) = self.emit(0, &code.code, &[]) else {
            return;
        };
        self.items.insert(at, CacheItem::MissStub);
        (self.first_miss, self.second_miss) = (at, at + miss);
        self.traps.insert(self.second_miss, TrapCause::Miss);
        for index in 0..layout::TARGETS {
            self.tables
                .store(layout::FIRST - layout::TABLES + index * 8, self.first_miss);
            self.tables
                .store(layout::SECOND - layout::TABLES + index * 8, self.second_miss);
        }
    }

    /// Adds the translated address `ip` to the indirect-branch lookup.
    pub(in crate::translate) fn add_indirect_entry(&mut self, ip: u64) -> Option<()> {
        let entry = match self.indirect_entry(ip) {
            Some(entry) => entry,
            None => self.write_indirect_entry(ip)?,
        };
        self.put_first(ip, entry);
        Some(())
    }

    /// Returns the entries of a target, if it has any.
    pub(super) fn indirect_entry(&self, ip: u64) -> Option<IndirectEntry> {
        let own = self.indirect_entries.get(&ip).copied();
        own.or_else(|| self.placed.iter().find_map(|unit| unit.indirect_entry(ip)))
    }

    /// Puts the entry of a target into the first table.
    pub(super) fn put_first(&self, ip: u64, entry: IndirectEntry) {
        let index = hash(ip);
        let slot = |table: u64| table - layout::TABLES + index * 8;
        let first = self.tables.load(slot(layout::FIRST));
        if first != entry.first && first != self.first_miss {
            // The displaced target is found in the second table from now on.
            let displaced = self.item(first).and_then(|(at, item)| match *item {
                CacheItem::IndirectEntry { ip, .. } if at == first => self.indirect_entry(ip),
                _ => None,
            });
            if let Some(displaced) = displaced {
                self.tables.store(slot(layout::SECOND), displaced.second);
            }
        }
        self.tables.store(slot(layout::FIRST), entry.first);
    }

    fn write_indirect_entry(&mut self, ip: u64) -> Option<IndirectEntry> {
        let block = self.block(ip)?;
        let index = self
            .slab(ip)
            .or_else(|| self.slabs.iter().position(|slab| slab.contains(block)))?;
        let mut emit = |table: EntryTable| {
            let entry = EntryCode::new(ip, table);
            let at = self.emit(index, &entry.code.code, &[])?;
            let (len, clean) = (entry.code.len() as u32, entry.clean);
            self.items.insert(at, CacheItem::IndirectEntry { ip, clean, len });
            self.patch_jump(at + entry.site as u64, block);
            if let Some(miss) = entry.miss {
                self.traps.insert(at + miss as u64, TrapCause::Miss);
            }
            Some(at)
        };
        let entry = IndirectEntry {
            first: emit(EntryTable::First)?,
            second: emit(EntryTable::Second)?,
        };
        self.indirect_entries.insert(ip, entry);
        Some(entry)
    }
}

/// Returns the table index of a target, as [`Assembler::hash`] computes it.
pub(super) fn hash(target: u64) -> u64 {
    let step = |crc: u32, byte: u8| {
        let index = (crc as u8 ^ byte) as usize;
        crc >> 8 ^ CRC32C.get(index).copied().unwrap_or(0)
    };
    let crc = target.to_le_bytes().into_iter().fold(0, step);
    u64::from(crc) & (layout::TARGETS - 1)
}

/// The remainders of all bytes for the Castagnoli polynomial, reversed (SDM, "CRC32").
const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)]
    use super::*;

    #[test]
    fn hash_matches_stubs() {
        for target in [0, 1, 0x40_1234, 0x7fbc_15ee_cca1, u64::MAX] {
            // SAFETY: the stubs require SSE4.2 as well.
            let crc = unsafe { core::arch::x86_64::_mm_crc32_u64(0, target) };
            assert_eq!(hash(target), crc & 0xffff, "{target:#x}");
        }
    }
}
