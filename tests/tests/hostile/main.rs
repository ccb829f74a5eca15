//! Hostile input: mutated seeds for every reader of outside bytes. None may panic, hang, or use
//! excessive memory.
//!
//! Each target runs for `BACKTRAIL_FUZZ_SECONDS` (3) from `BACKTRAIL_FUZZ_SEED` (1), on a stable
//! compiler. A failed case is written to the `fuzz` folder of the target directory. `cargo xtask
//! fuzz --hours N` runs the targets for long. Cases in `tests/fuzz/corpus/TARGET` are additional
//! seeds.
#![cfg(test)]

mod binaries;
mod compressed;
mod harness;
mod memory;
mod messages;
mod mutate;
mod profile_recordings;
mod profile_sizes;
mod profiles;
mod samples;
mod seeds;
mod stacks;
mod targets;
mod thread_contexts;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
