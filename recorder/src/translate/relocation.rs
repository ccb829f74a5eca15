//! Moves the recorder's memory away from addresses that the program wants for itself.

use super::address_space::{AddressSpace, MemoryId, no_place};
use super::free_places::free_below;
use super::layout;
use super::region::Region;
use super::tracee::Tracee;
use crate::PAGE;
use crate::error::Result;
use backtrail_bundle::core::Registers;
use backtrail_process::maps::{self, Map};
use std::ops::Range;
use std::sync::Arc;

/// `mremap(2)`: the new address is an argument.
const MREMAP_FIXED: u64 = libc::MREMAP_FIXED as u64;

/// Returns the address ranges that a system call maps, unmaps or changes. `registers` are those of
/// the call.
pub(super) fn claimed_ranges(registers: &Registers) -> Vec<Range<u64>> {
    let Registers {
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        ..
    } = *registers;
    let pages = |start: u64, len: u64| {
        let end = start.saturating_add(len).saturating_add(PAGE - 1);
        start & !(PAGE - 1)..end & !(PAGE - 1)
    };
    match registers.rax as libc::c_long {
        // Without a flag the address is a wish, which the kernel grants if nothing is there.
        libc::SYS_mmap if rdi != 0 => vec![pages(rdi, rsi)],
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => vec![pages(rdi, rsi)],
        libc::SYS_mremap if r10 & MREMAP_FIXED != 0 => vec![pages(rdi, rsi), pages(r8, rdx)],
        libc::SYS_mremap => vec![pages(rdi, rsi.max(rdx))],
        libc::SYS_shmat if rsi != 0 => vec![pages(rsi, shared_memory_size(rdi))],
        _ => Vec::new(),
    }
}

/// Returns the size of a System V shared memory segment, or a page if it is unknown.
fn shared_memory_size(id: u64) -> u64 {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let size = all.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        (fields.nth(1)?.parse() == Ok(id)).then_some(())?;
        fields.nth(1)?.parse().ok()
    });
    size.unwrap_or(PAGE)
}

/// Returns whether two ranges have a common address.
fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn range((start, size): (u64, u64)) -> Range<u64> {
    start..start.saturating_add(size)
}

impl AddressSpace {
    /// Returns whether a system call needs addresses of the recorder's memory.
    pub(super) fn is_claimed_by(&self, registers: &Registers) -> bool {
        let claimed = claimed_ranges(registers);
        !claimed.is_empty()
            && self
                .areas()
                .into_iter()
                .any(|area| claimed.iter().any(|claimed| overlaps(claimed, &range(area))))
    }

    /// Moves the recorder's memory away from the addresses that a system call needs. `regions` are
    /// those of the threads in this memory, the tracee's first. No thread may be in the cache, and
    /// no other memory may share it.
    pub(super) fn vacate(
        &mut self,
        tracee: &mut Tracee<'_>,
        memory: MemoryId,
        regions: &[Arc<Region>],
        claimed: &[Range<u64>],
    ) -> Result<()> {
        self.avoid(tracee.tid, claimed);
        let is_claimed = |area: (u64, u64)| claimed.iter().any(|claimed| overlaps(claimed, &range(area)));
        let slabs: Vec<(u64, u64)> = self.cache.areas().filter(|slab| is_claimed(*slab)).collect();
        for (start, size) in &slabs {
            self.cache.remove_slab(*start);
            tracee.unmap(*start, *size)?;
        }
        if !slabs.is_empty() {
            self.flush();
        }
        let ranges = self.region_ranges();
        if !ranges.iter().any(|area| is_claimed(*area)) {
            return Ok(());
        }
        if let Some(own) = regions.first() {
            tracee.gadget = own.gadget();
        }
        self.forget(memory);
        for region in regions {
            self.move_region(tracee, region, claimed)?;
        }
        if let Some(own) = regions.first() {
            self.adopt(own);
            tracee.gadget = own.gadget();
        }
        // The remaining regions belong to threads that have ended, or that exist in a parent only.
        for (start, size) in ranges {
            tracee.unmap(start, size)?;
        }
        self.set_regions(regions.iter().map(|region| region.base()));
        Ok(())
    }

    /// Moves a region to unused addresses that are not claimed.
    fn move_region(
        &mut self,
        tracee: &mut Tracee<'_>,
        region: &Region,
        claimed: &[Range<u64>],
    ) -> Result<()> {
        let mut maps = maps::maps(tracee.tid);
        maps.extend(claimed.iter().map(|claimed| Map {
            start: claimed.start,
            end: claimed.end,
            ..Map::default()
        }));
        maps.sort_by_key(|map| map.start);
        let start = self.next_region_place(tracee.mapped_by_kernel(layout::REGION_SIZE)?);
        let to = free_below(&maps, start).ok_or_else(|| no_place(tracee.tid))?;
        region.move_to(tracee, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(number: libc::c_long, rest: Registers) -> Vec<(u64, u64)> {
        let ranges = claimed_ranges(&Registers {
            rax: number as u64,
            ..rest
        });
        ranges.into_iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn ranges_are_whole_pages_of_the_call() {
        let call = Registers {
            rdi: 0x10010,
            rsi: 0x1000,
            ..Registers::default()
        };
        assert_eq!(claimed(libc::SYS_munmap, call), [(0x10000, 0x12000)]);
        assert_eq!(claimed(libc::SYS_mprotect, call), [(0x10000, 0x12000)]);
        assert_eq!(claimed(libc::SYS_mmap, call), [(0x10000, 0x12000)]);
        assert_eq!(claimed(libc::SYS_mmap, Registers { rdi: 0, ..call }), []);
        assert_eq!(claimed(libc::SYS_read, call), []);
        let moved = Registers {
            rdi: 0x10000,
            r10: MREMAP_FIXED,
            r8: 0x50000,
            rdx: 0x2000,
            ..call
        };
        assert_eq!(
            claimed(libc::SYS_mremap, moved),
            [(0x10000, 0x11000), (0x50000, 0x52000)]
        );
        assert_eq!(
            claimed(libc::SYS_mremap, Registers { r10: 0, ..moved }),
            [(0x10000, 0x12000)]
        );
        assert_eq!(
            claimed(
                libc::SYS_munmap,
                Registers {
                    rsi: u64::MAX,
                    ..call
                }
            ),
            [(0x10000, !(PAGE - 1))]
        );
    }
}
