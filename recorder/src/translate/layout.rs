//! The layout of the memory that the recorder adds to the program.
//!
//! Each thread has a region, and its GS base points to it. 64-bit Linux programs do not use GS;
//! instructions that do are stepped natively. The code cache consists of slabs, each close enough
//! to its code that relative operands stay in reach.
//!
//! | offset in a region | content |
//! |---|---|
//! | 0 | [`LOG_POINTER`] and the spill slots of stubs |
//! | [`TABLES`] | the lookup tables, shared by all threads of a program |
//! | [`GADGET`] | a SYSCALL instruction for the recorder |
//! | [`CHUNKS`] | the log: [`CHUNK_COUNT`] chunks, each followed by a guard page |
//! | [`STAGE`] | the values of the current block, if values are recorded |
//! | [`VALUES`] | the values of the blocks before, followed by a guard page |

use super::interception::Interception;
use crate::PAGE;

/// Slot: the address of the next byte of the log.
pub(super) const LOG_POINTER: u32 = 0;
/// Slot: RAX while a stub uses it.
pub(super) const SAVED_RAX: u32 = 8;
/// Slot: RCX while a stub uses it.
pub(super) const SAVED_RCX: u32 = 16;
/// Slot: RDX while a stub uses it.
pub(super) const SAVED_RDX: u32 = 24;
/// Slot: the last code version that the thread has logged.
pub(super) const VERSION: u32 = 32;
/// Slot: a number whose sign is tested.
pub(super) const NUMBER: u32 = 40;
/// Slot: the complement of the stack pointer at the entry of the allocator function that runs; 0:
/// none runs.
pub(super) const ALLOCATOR_STACK: u32 = 48;
/// Slot: the complement of its return address.
pub(super) const ALLOCATOR_RETURN: u32 = 56;

/// A disposition that the recorder restores.
pub(super) const ACTION: u32 = 64;
/// Slot: 1 if the block that the allocator function returns is logged.
pub(super) const ALLOCATOR_LOGS: u32 = 96;
/// Slot: the address where the allocator function stores its block; 0: it returns the block.
pub(super) const ALLOCATOR_OUT: u32 = 104;
/// Slot: the address of the next byte of values.
pub(super) const VALUE_POINTER: u32 = 112;
/// The information of a signal that the recorder sends again.
pub(super) const SIGNAL: u32 = 128;
/// A modified copy of system call arguments in memory, so that the program's own are not changed.
pub(super) const ARGUMENTS: u32 = 256;
/// The size of the copy.
pub(super) const ARGUMENTS_SIZE: u64 = PAGE - ARGUMENTS as u64;

/// The offset of the tables from the start of the region.
pub(super) const TABLES: u64 = PAGE;
/// One byte for each system call number (its low 16 bits): an [`Interception`].
pub(super) const INTERCEPTED: u64 = TABLES;
/// The number of system call numbers.
pub(super) const INTERCEPTED_SIZE: u64 = 1 << 16;
/// The number of entries in each of the two indirect-branch lookup tables, indexed by a hash of the
/// target.
pub(super) const TARGETS: u64 = 1 << 16;
/// The first table: the entry that is tried first.
pub(super) const FIRST: u64 = INTERCEPTED + INTERCEPTED_SIZE;
/// The second table: the entry that is tried after a miss in the first.
pub(super) const SECOND: u64 = FIRST + TARGETS * 8;
/// One byte for each byte value: its lowest bit.
pub(super) const ODD: u64 = SECOND + TARGETS * 8;
/// The number of byte values.
pub(super) const ODD_SIZE: u64 = 1 << 8;
/// For each [`Interception`], one byte for each value of the low byte of the first argument: 1 if
/// the recorder intercepts the call.
pub(super) const BY_ARGUMENT: u64 = ODD + ODD_SIZE;
/// The size of these tables.
pub(super) const BY_ARGUMENT_SIZE: u64 = Interception::COUNT << 8;
/// The size of all tables.
pub(super) const TABLES_SIZE: u64 = INTERCEPTED_SIZE + 2 * TARGETS * 8 + PAGE;

/// The offset of a page with code of the recorder: see [`GADGET_CODE`].
pub(super) const GADGET: u64 = CHUNKS - PAGE;
/// SYSCALL, then bytes that trap, and an empty string at [`GADGET_NAME`].
pub(super) const GADGET_CODE: [u8; 9] = [0x0f, 0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0];
/// The offset of the empty string in [`GADGET_CODE`].
pub(super) const GADGET_NAME: u64 = 8;

/// The offset of the log from the start of the region.
pub(super) const CHUNKS: u64 = 0x20_0000;
/// The size of a chunk.
pub(super) const CHUNK: u64 = 512 << 10;
/// The number of chunks of a thread: one is filled while the others are encoded.
pub(super) const CHUNK_COUNT: u64 = 4;
/// The distance between chunks: the page between two chunks is not mapped.
pub(super) const CHUNK_STRIDE: u64 = CHUNK + PAGE;
/// The offset of the stage from the start of the region: one word for each value.
pub(super) const STAGE: u64 = CHUNKS + CHUNK_COUNT * CHUNK_STRIDE;
/// The offset of the bases of FS and GS that the program has.
pub(super) const BASES: u64 = STAGE + PAGE / 2;
/// The offset of the values.
pub(super) const VALUES: u64 = STAGE + PAGE;
/// The size of the buffer for values. Another segment begins when it is full.
pub(super) const VALUES_SIZE: u64 = 1 << 20;
/// The address space that a region occupies.
pub(super) const REGION_SIZE: u64 = VALUES + VALUES_SIZE + PAGE;

/// The distance between the address where the kernel places new mappings and the regions below it.
///
/// Regions are where libraries could be. Programs that own fixed parts of the address space, such
/// as those with sanitizers, leave that part to the kernel. The program's own mappings have this
/// much room before they reach a region.
const ROOM_FOR_MAPPINGS: u64 = 64 << 30;
/// The lowest address of a region. Programs at fixed addresses and shadow memory may be below it.
pub(super) const LOWEST_REGION: u64 = 1 << 32;
/// The maximum distance between a block and its code, so that relative operands stay in reach.
pub(super) const REACH: u64 = 0x7000_0000;
/// The size of a slab of the code cache.
pub(super) const SLAB_SIZE: u64 = 64 << 20;

const _: () =
    assert!(BY_ARGUMENT + BY_ARGUMENT_SIZE <= TABLES + TABLES_SIZE && TABLES + TABLES_SIZE <= GADGET);
// Each region begins where another one ends.
const _: () = assert!(REGION_SIZE.is_multiple_of(PAGE));

/// Returns the address where the downward search for a region begins, if the kernel would place a
/// new mapping at `mapped`.
pub(super) fn first_region(mapped: u64) -> u64 {
    let at = mapped.saturating_sub(ROOM_FOR_MAPPINGS);
    at.max(LOWEST_REGION) & !(PAGE - 1)
}

/// Returns the offset of a chunk from the start of the region.
pub(super) fn chunk_start(chunk: u64) -> u64 {
    CHUNKS + chunk * CHUNK_STRIDE
}

/// Returns the chunk whose guard page contains this offset into the region.
pub(super) fn full_chunk(offset: u64) -> Option<u64> {
    let from = offset.checked_sub(CHUNKS)?;
    (from % CHUNK_STRIDE >= CHUNK && from / CHUNK_STRIDE < CHUNK_COUNT).then_some(from / CHUNK_STRIDE)
}

/// Returns whether this offset into the region is in the guard page after the values.
pub(super) fn is_after_values(offset: u64) -> bool {
    (VALUES + VALUES_SIZE..REGION_SIZE).contains(&offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_guard_page_means_full_chunk() {
        assert_eq!(full_chunk(CHUNKS + CHUNK - 1), None);
        assert_eq!(full_chunk(CHUNKS + CHUNK), Some(0));
        assert_eq!(full_chunk(chunk_start(3) + CHUNK + PAGE - 1), Some(3));
        assert_eq!(full_chunk(chunk_start(4) + CHUNK), None);
        assert_eq!(full_chunk(0), None);
    }
}
