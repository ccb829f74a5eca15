//! Hostile input: seeds are mutated and fed to every reader of outside bytes. None may panic, hang,
//! or take memory out of proportion.
//!
//! Each target runs for `BACKTRAIL_FUZZ_SECONDS` (3) from `BACKTRAIL_FUZZ_SEED` (1), on a stable
//! compiler. A case that fails is left in the `fuzz` folder of the target directory. `cargo xtask fuzz --hours N` runs them
//! for long. Cases in `tests/fuzz/corpus/TARGET` are seeds beside those that are made here.
#![cfg(test)]

mod binaries;
mod harness;
mod memory;
mod messages;
mod mutate;
mod seeds;
mod stacks;
mod targets;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
