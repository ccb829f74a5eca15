//! Engine `translate`: the program runs in a code cache, without a stop for each instruction.
//!
//! Its code is copied block by block into memory added to the program; what ends a block becomes a stub
//! that logs where control goes ([`block`], [`event`]) and goes on in the cache. The recorder gets
//! control only where the cache knows no way on, or the program does what the recorder must know of. No
//! register, flag or stack byte of the program is changed: return addresses are the original ones, and
//! at every stop the true state can be told ([`thread`]).
//!
//! From the bottom up: [`layout`] says where things lie; [`memory`] and [`tracee`] share memory with the
//! program; [`assembler`] and [`block`] write code; [`cache`] minds the blocks of an address space, which
//! is a [`space`], and [`code_pages`] is the code they are made from; [`region`] is a thread's part of it; [`scribe`] turns logs into packets.

mod assembler;
mod block;
mod cache;
mod code_pages;
mod event;
mod layout;
mod memory;
mod region;
mod scribe;
mod space;
mod thread;
mod tracee;

pub(crate) use scribe::{Keep, Scribe};
pub(crate) use thread::{Kin, Making, SharedSpace, State, Translated, Trapped};
