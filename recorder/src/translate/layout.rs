//! Where things lie in the recorded program: the areas that the recorder adds to it.
//!
//! Each thread has a region, which its GS base points at (64-bit Linux programs leave GS alone; one that
//! does not is stepped where it uses it). The code cache has clusters, each within reach of the code it
//! is made from, so that relative operands still reach.
//!
//! | offset in a region | what |
//! |---|---|
//! | 0 | [`LOG_POINTER`] and the slots that stubs save registers in |
//! | [`TABLES`] | the tables, shared by all threads of a program |
//! | [`CHUNKS`] | the log: [`CHUNK_COUNT`] chunks, each before an unmapped page that says it is full |

use crate::PAGE;

/// Slot: address of the next byte of the log.
pub(super) const LOG_POINTER: u32 = 0;
/// Slot: RAX while a stub uses it.
pub(super) const SAVED_RAX: u32 = 8;
/// Slot: RCX while a stub uses it.
pub(super) const SAVED_RCX: u32 = 16;
/// Slot: RDX while a stub uses it.
pub(super) const SAVED_RDX: u32 = 24;
/// Slot: the last change of code that the thread's log tells of.
pub(super) const VERSION: u32 = 32;
/// Slot: a number whose sign is wanted.
pub(super) const NUMBER: u32 = 40;

/// A copy of what a system call is given, where the program's own is not to be changed.
pub(super) const ARGUMENTS: u32 = 64;
/// Bytes there is room for.
pub(super) const ARGUMENTS_SIZE: u64 = PAGE - ARGUMENTS as u64;

/// The tables, from the region's start.
pub(super) const TABLES: u64 = PAGE;
/// A byte a system call number (its low 16 bits): 1 where the recorder makes the call itself.
pub(super) const SPECIAL: u64 = TABLES;
const SPECIAL_SIZE: u64 = 1 << 16;
/// Entries of each of the two tables of indirect targets: by the low bits of a hash of the address.
pub(super) const TARGETS: u64 = 1 << 16;
/// First table: the landing to try first.
pub(super) const FIRST: u64 = SPECIAL + SPECIAL_SIZE;
/// Second table: the landing that the first's own failure leads to.
pub(super) const SECOND: u64 = FIRST + TARGETS * 8;
/// Bytes of all tables.
pub(super) const TABLES_SIZE: u64 = SPECIAL_SIZE + 2 * TARGETS * 8;

/// The log, from the region's start.
pub(super) const CHUNKS: u64 = 0x20_0000;
/// Bytes of a chunk.
pub(super) const CHUNK: u64 = 512 << 10;
/// Chunks of a thread: one is filled while the others are read.
pub(super) const CHUNK_COUNT: u64 = 4;
/// From a chunk to the next: the page between is not mapped.
pub(super) const CHUNK_STRIDE: u64 = CHUNK + PAGE;
/// Bytes of address space a region takes.
pub(super) const REGION_SIZE: u64 = CHUNKS + CHUNK_COUNT * CHUNK_STRIDE;

/// Bytes between the place where the kernel maps what a program asks for, and the regions below it.
///
/// Regions are where libraries could be: a program that owns fixed parts of the address space, as the sanitizers' run-time
/// libraries do, leaves that part to the kernel. The program's own mappings have this much room before they meet a region.
const ROOM_FOR_MAPPINGS: u64 = 64 << 30;
/// No region is below: programs at fixed addresses, and shadow memory, may be there.
pub(super) const LOWEST_REGION: u64 = 1 << 32;
/// Bytes of a cluster of the code cache.
pub(super) const CLUSTER_SIZE: u64 = 64 << 20;

const _: () = assert!(TABLES + TABLES_SIZE <= CHUNKS);
// One begins where another ends.
const _: () = assert!(REGION_SIZE.is_multiple_of(PAGE));

/// Where to begin to look for places of regions, downward, when the kernel would map something at `mapped`.
pub(super) fn first_region(mapped: u64) -> u64 {
    let at = mapped.saturating_sub(ROOM_FOR_MAPPINGS);
    at.max(LOWEST_REGION) & !(PAGE - 1)
}

/// The start of a chunk, from the region's start.
pub(super) fn chunk_start(chunk: u64) -> u64 {
    CHUNKS + chunk * CHUNK_STRIDE
}

/// The chunk whose end page holds this offset into the region.
pub(super) fn full_chunk(offset: u64) -> Option<u64> {
    let from = offset.checked_sub(CHUNKS)?;
    (from % CHUNK_STRIDE >= CHUNK && from / CHUNK_STRIDE < CHUNK_COUNT).then_some(from / CHUNK_STRIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_behind_a_chunk_says_it_is_full() {
        assert_eq!(full_chunk(CHUNKS + CHUNK - 1), None);
        assert_eq!(full_chunk(CHUNKS + CHUNK), Some(0));
        assert_eq!(full_chunk(chunk_start(3) + CHUNK + PAGE - 1), Some(3));
        assert_eq!(full_chunk(chunk_start(4) + CHUNK), None);
        assert_eq!(full_chunk(0), None);
    }
}
