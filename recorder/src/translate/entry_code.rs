//! The code of an entry of the indirect-branch lookup.

use super::assembler::{Assembler, Scratch, TRAP_LEN};
use super::layout;

/// The table that an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryTable {
    First,
    Second,
}

/// The code of an entry, which receives indirect branches.
pub(super) struct EntryCode {
    pub(super) code: Assembler,
    /// The offset of the displacement of the jump to the block.
    pub(super) site: usize,
    /// The offset from which on all registers have the program's values.
    pub(super) clean: u32,
    /// The offset of the trap for other targets.
    pub(super) miss: Option<usize>,
}

impl EntryCode {
    /// Builds the entry for `ip`. Its size and offsets are the same for all targets.
    pub(super) fn new(ip: u64, table: EntryTable) -> Self {
        let mut code = Assembler::default();
        code.set_negated(Scratch::Rcx, ip);
        code.add_rax_to_rcx();
        let miss = match table {
            EntryTable::First => {
                let mut jump = Assembler::default();
                jump.jump_by_table(layout::SECOND);
                code.skip_if_rcx_is_zero(jump.len() as u8);
                code.bytes(&jump.code);
                None
            }
            EntryTable::Second => {
                code.skip_if_rcx_is_zero(TRAP_LEN);
                let miss = code.len();
                code.padded_trap();
                Some(miss)
            }
        };
        code.load(Scratch::Rdx, layout::SAVED_RDX);
        code.load(Scratch::Rcx, layout::SAVED_RCX);
        code.load(Scratch::Rax, layout::SAVED_RAX);
        let clean = code.len() as u32;
        let site = code.jump();
        Self {
            code,
            site,
            clean,
            miss,
        }
    }
}
