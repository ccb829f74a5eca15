//! The content of the code cache: blocks, entries and traps.

use super::block::{BlockTrap, SourceBytes};
use std::num::NonZeroU32;

/// The content at a cache address.
#[derive(Clone, Debug)]
pub(super) enum CacheItem {
    Block {
        ip: u64,
        /// The code version at the time of translation.
        version: u32,
        /// [`BlockOptions::min_version`].
        min_version: Option<NonZeroU32>,
        /// [`BlockOptions::superblock`].
        superblock: bool,
        /// The block for `ip` that this superblock has replaced.
        before: Option<u64>,
        source: SourceBytes,
        len: u32,
        /// Its code can be stored: the fields that depend on addresses are known.
        is_movable: bool,
    },
    /// Receives indirect branches to `ip`. From offset `clean` on, all registers have the program's
    /// values.
    IndirectEntry { ip: u64, clean: u32, len: u32 },
    /// Receives indirect branches that miss in the lookup tables.
    MissStub,
}

/// The entries of an indirect-branch target: one for the first table, and one for the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndirectEntry {
    pub(super) first: u64,
    pub(super) second: u64,
}

/// The reason that a thread in the cache has trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrapCause {
    /// `target` is next. The jump with its displacement at `site` may be linked to it.
    Exit {
        site: u64,
        target: u64,
    },
    /// The target of an indirect branch, in RAX, is not in the tables.
    Miss,
    InterceptedSyscall {
        ip: u64,
        next: u64,
    },
    Native {
        ip: u64,
        outcomes: u8,
    },
    /// The instruction at `ip` has stored the x87 instruction pointer.
    StoredX87Pointer {
        ip: u64,
    },
    /// The instruction at `ip` is about to execute, and the recorder must log its loads.
    Predicted {
        ip: u64,
    },
    /// The instruction at `ip` is about to execute, and the recorder must store its operand under
    /// a mask on the stage, at `slot`.
    Masked {
        ip: u64,
        slot: u32,
    },
    /// The POPF at `ip` sets the trap flag.
    SetsTrapFlag {
        ip: u64,
        outcomes: u8,
    },
    /// The thread must log the current code version before it continues at `ip`.
    StaleVersion {
        ip: u64,
    },
}

impl TrapCause {
    /// Returns the cause of a trap in code at `at`. Addresses of the program are offsets from
    /// `program`.
    pub(super) fn of(trap: BlockTrap, at: u64, program: u64) -> Self {
        let address = |offset: u64| offset.wrapping_add(program);
        match trap {
            BlockTrap::Exit { site, target } => Self::Exit {
                site: at + u64::from(site),
                target: address(target),
            },
            BlockTrap::InterceptedSyscall { ip, next } => Self::InterceptedSyscall {
                ip: address(ip),
                next: address(next),
            },
            BlockTrap::Native { ip, outcomes } => Self::Native {
                ip: address(ip),
                outcomes,
            },
            BlockTrap::StoredX87Pointer { ip } => Self::StoredX87Pointer { ip: address(ip) },
            BlockTrap::SetsTrapFlag { ip, outcomes } => Self::SetsTrapFlag {
                ip: address(ip),
                outcomes,
            },
            BlockTrap::Predicted { ip } => Self::Predicted { ip: address(ip) },
            BlockTrap::Masked { ip, slot } => Self::Masked {
                ip: address(ip),
                slot,
            },
            BlockTrap::StaleVersion { ip } => Self::StaleVersion { ip: address(ip) },
        }
    }
}
