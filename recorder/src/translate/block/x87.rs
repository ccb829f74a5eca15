//! Instructions that store the address of the last x87 instruction, which is in the cache.

use super::{BlockTrap, Flow, InstructionState, NextIp, SourceInstruction, SpilledRegisters, Translator};
use crate::translate::assembler::Scratch;
use crate::translate::layout;
use iced_x86::{Instruction, Mnemonic, Register};

/// The place of the stored address in the operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::translate) struct X87Pointer {
    /// The offset in the operand.
    pub(in crate::translate) offset: u8,
    /// The size in bytes, 4 or 8.
    pub(in crate::translate) size: u8,
}

/// Returns the place of the x87 instruction pointer that an instruction stores (SDM volume 1,
/// "x87 FPU Instruction and Data (Operand) Pointers").
pub(in crate::translate) fn x87_pointer(instruction: &Instruction) -> Option<X87Pointer> {
    let (offset, size) = match instruction.mnemonic() {
        Mnemonic::Fnstenv | Mnemonic::Fnsave | Mnemonic::Fstenv | Mnemonic::Fsave => (12, 4),
        Mnemonic::Fxsave64 | Mnemonic::Xsave64 | Mnemonic::Xsavec64 | Mnemonic::Xsaveopt64 => (8, 8),
        Mnemonic::Fxsave | Mnemonic::Xsave | Mnemonic::Xsavec | Mnemonic::Xsaveopt => (8, 4),
        _ => return None,
    };
    Some(X87Pointer { offset, size })
}

impl Translator<'_> {
    /// Copies an instruction that stores the x87 instruction pointer. Traps if it has stored one,
    /// so that the recorder can replace it.
    pub(super) fn store_x87_pointer(&mut self, original: &SourceInstruction<'_>, place: X87Pointer) -> Flow {
        let ip = original.ip;
        let address = address_of_operand(original);
        let start = self.out.len();
        let copied = self.relocate(original.bytes, original);
        let done = |spilled| InstructionState::Done {
            spilled,
            event: None,
            next: NextIp::At(original.next()),
        };
        let entries = self.block.entries.len();
        self.record(ip, done(SpilledRegisters::NONE));
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.record(ip, done(SpilledRegisters::RCX));
        if !copied || !address.is_some_and(|bytes| self.relocate(&bytes, original)) {
            self.out.truncate(start);
            self.block.entries.truncate(entries);
            self.native(ip);
            return Flow::EndBlock;
        }
        self.out.load_through_rcx(place.offset, place.size == 8);
        self.out.skip_if_rcx_is_zero(1);
        self.trap(BlockTrap::StoredX87Pointer { ip });
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        Flow::ContinueAt(original.next())
    }
}

/// Builds `lea rcx, OPERAND`. Returns `None` for forms that compilers do not generate.
fn address_of_operand(original: &SourceInstruction<'_>) -> Option<Vec<u8>> {
    if original.instruction.segment_prefix() != Register::None {
        return None;
    }
    let is_opcode = |bytes: &[u8]| matches!(bytes, [0xd9 | 0xdd, ..] | [0x0f, 0xae | 0xc7, ..]);
    let opcode = (0..original.bytes.len()).find(|at| original.bytes.get(*at..).is_some_and(is_opcode))?;
    let (prefixes, rest) = original.bytes.split_at(opcode);
    let rex = match prefixes {
        [] | [0x9b] => 0x40,
        [rex @ 0x40..=0x4f] => *rex,
        _ => return None,
    };
    let len = if rest.first() == Some(&0x0f) { 2 } else { 1 };
    let (modrm, operand) = rest.get(len..)?.split_first()?;
    // Set REX.W and clear REX.R, because the destination is RCX.
    let mut bytes = vec![(rex | 8) & !4, 0x8d, modrm & !0x38 | 0x08];
    bytes.extend_from_slice(operand);
    Some(bytes)
}
