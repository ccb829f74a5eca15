//! The indirect-branch lookup: two hash tables of entries, which check the target and jump to its
//! block.

use super::{Cache, CacheItem, IndirectEntry, TrapCause};
use crate::translate::assembler::{Assembler, Scratch};
use crate::translate::layout;

impl Cache {
    pub(super) fn write_miss_stubs(&mut self) {
        let mut code = Assembler::default();
        code.jump_by_table(layout::SECOND);
        while !code.len().is_multiple_of(16) {
            code.trap();
        }
        let miss = code.len() as u64;
        code.trap();
        let Some(at) = self.emit(0, &code.code) else {
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
        let entry = match self.indirect_entries.get(&ip) {
            Some(entry) => *entry,
            None => self.write_indirect_entry(ip)?,
        };
        let index = hash(ip);
        let slot = |table: u64| table - layout::TABLES + index * 8;
        let first = self.tables.load(slot(layout::FIRST));
        if first != entry.first && first != self.first_miss {
            // The displaced target is found in the second table from now on.
            let displaced = match self.items.get(&first) {
                Some(CacheItem::IndirectEntry { ip, .. }) => {
                    self.indirect_entries.get(ip).map(|entry| entry.second)
                }
                _ => None,
            };
            if let Some(displaced) = displaced {
                self.tables.store(slot(layout::SECOND), displaced);
            }
        }
        self.tables.store(slot(layout::FIRST), entry.first);
        Some(())
    }

    fn write_indirect_entry(&mut self, ip: u64) -> Option<IndirectEntry> {
        let block = *self.blocks.get(&ip)?;
        let entry = |otherwise: Option<u64>| {
            let mut code = Assembler::default();
            code.set(Scratch::Rcx, ip.wrapping_neg());
            code.add_rax_to_rcx();
            match otherwise {
                Some(table) => {
                    let mut jump = Assembler::default();
                    jump.jump_by_table(table);
                    code.skip_if_rcx_is_zero(jump.len() as u8);
                    code.bytes(&jump.code);
                }
                None => {
                    code.skip_if_rcx_is_zero(1);
                    code.trap();
                }
            }
            let miss = code.len() - 1;
            code.load(Scratch::Rdx, layout::SAVED_RDX);
            code.load(Scratch::Rcx, layout::SAVED_RCX);
            code.load(Scratch::Rax, layout::SAVED_RAX);
            let clean = code.len() as u32;
            let site = code.jump();
            (code, site, clean, miss)
        };
        let index = self
            .slab(ip)
            .or_else(|| self.slabs.iter().position(|slab| slab.contains(block)))?;
        let mut emit = |otherwise: Option<u64>| {
            let (code, site, clean, miss) = entry(otherwise);
            let at = self.emit(index, &code.code)?;
            let len = code.len() as u32;
            self.items.insert(at, CacheItem::IndirectEntry { ip, clean, len });
            self.patch_jump(at + site as u64, block);
            if otherwise.is_none() {
                self.traps.insert(at + miss as u64, TrapCause::Miss);
            }
            Some(at)
        };
        let entry = IndirectEntry {
            first: emit(Some(layout::SECOND))?,
            second: emit(None)?,
        };
        self.indirect_entries.insert(ip, entry);
        Some(entry)
    }
}

/// Returns the table index of a target, as [`Assembler::hash`] computes it.
pub(super) fn hash(target: u64) -> u64 {
    /// The Castagnoli polynomial, reversed (SDM, "CRC32").
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = 0u32;
    for byte in target.to_le_bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    u64::from(crc) & (layout::TARGETS - 1)
}

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
