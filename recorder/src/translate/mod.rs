//! Engine `translate`: runs the program in a code cache, without a stop for each instruction.
//!
//! The program's code is copied block by block into memory that is added to the program. Each block
//! ends in a stub that logs the control transfer ([`block`], [`event`]) and continues in the cache.
//!
//! The recorder gets control only at untranslated code, and at system calls that it must intercept.
//! The program's registers, flags and stack never change: return addresses are the original ones,
//! and its state can be reconstructed at every stop ([`thread`]).
//!
//! From the bottom up: [`layout`] defines the memory layout. [`memory`] and [`tracee`] share memory
//! with the program. [`assembler`] and [`block`] write code. [`cache`] holds the blocks of an
//! [`address_space`], which are translated from [`code_pages`]. [`region`] is the memory of one
//! thread. [`encoder`] turns logs into packets. [`watched`] finds the functions whose calls become
//! heap events. [`stored`] keeps translations for other processes.

mod address_field;
mod address_space;
mod assembler;
mod block;
mod cache;
mod cache_item;
mod code_pages;
mod encoder;
mod entry_code;
mod event;
pub(crate) mod foreign_calls;
mod free_places;
mod interception;
mod layout;
mod memory;
mod region;
mod relocation;
mod staged;
mod stored;
mod thread;
mod tracee;
mod watched;

pub(crate) use address_space::{MemoryId, TranslateOptions};
pub(crate) use encoder::{EncoderPool, PacketStorage};
pub(crate) use stored::store::CodeStore;
pub(crate) use thread::{ParentState, SharedAddressSpace, ThreadState, Translated, TrapAction};
