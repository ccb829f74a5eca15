//! Instructions on mask registers alone.

use super::operands::operand;
use crate::execute::mask::{Mask, MaskKind};
use crate::operand::Operand;
use iced_x86::{Instruction, Mnemonic};

/// Returns the operation and the operands of an instruction. `None`: it is none on masks.
pub fn lift(instruction: &Instruction) -> Option<(Mask, [Operand; 4])> {
    let (kind, size) = kind(instruction.mnemonic())?;
    let operands = [
        operand(instruction, 0)?,
        operand(instruction, 1)?,
        operand(instruction, 2)?,
        Operand::None,
    ];
    Some((Mask { kind, size }, operands))
}

fn kind(mnemonic: Mnemonic) -> Option<(MaskKind, u8)> {
    Some(match mnemonic {
        Mnemonic::Kmovb => (MaskKind::Move, 1),
        Mnemonic::Kmovw => (MaskKind::Move, 2),
        Mnemonic::Kmovd => (MaskKind::Move, 4),
        Mnemonic::Kmovq => (MaskKind::Move, 8),
        Mnemonic::Knotb => (MaskKind::Not, 1),
        Mnemonic::Knotw => (MaskKind::Not, 2),
        Mnemonic::Knotd => (MaskKind::Not, 4),
        Mnemonic::Knotq => (MaskKind::Not, 8),
        Mnemonic::Kandb => (MaskKind::And, 1),
        Mnemonic::Kandw => (MaskKind::And, 2),
        Mnemonic::Kandd => (MaskKind::And, 4),
        Mnemonic::Kandq => (MaskKind::And, 8),
        Mnemonic::Kandnb => (MaskKind::AndNot, 1),
        Mnemonic::Kandnw => (MaskKind::AndNot, 2),
        Mnemonic::Kandnd => (MaskKind::AndNot, 4),
        Mnemonic::Kandnq => (MaskKind::AndNot, 8),
        Mnemonic::Korb => (MaskKind::Or, 1),
        Mnemonic::Korw => (MaskKind::Or, 2),
        Mnemonic::Kord => (MaskKind::Or, 4),
        Mnemonic::Korq => (MaskKind::Or, 8),
        Mnemonic::Kxorb => (MaskKind::Xor, 1),
        Mnemonic::Kxorw => (MaskKind::Xor, 2),
        Mnemonic::Kxord => (MaskKind::Xor, 4),
        Mnemonic::Kxorq => (MaskKind::Xor, 8),
        Mnemonic::Kxnorb => (MaskKind::Xnor, 1),
        Mnemonic::Kxnorw => (MaskKind::Xnor, 2),
        Mnemonic::Kxnord => (MaskKind::Xnor, 4),
        Mnemonic::Kxnorq => (MaskKind::Xnor, 8),
        Mnemonic::Kaddb => (MaskKind::Add, 1),
        Mnemonic::Kaddw => (MaskKind::Add, 2),
        Mnemonic::Kaddd => (MaskKind::Add, 4),
        Mnemonic::Kaddq => (MaskKind::Add, 8),
        Mnemonic::Kshiftlb => (MaskKind::ShiftLeft, 1),
        Mnemonic::Kshiftlw => (MaskKind::ShiftLeft, 2),
        Mnemonic::Kshiftld => (MaskKind::ShiftLeft, 4),
        Mnemonic::Kshiftlq => (MaskKind::ShiftLeft, 8),
        Mnemonic::Kshiftrb => (MaskKind::ShiftRight, 1),
        Mnemonic::Kshiftrw => (MaskKind::ShiftRight, 2),
        Mnemonic::Kshiftrd => (MaskKind::ShiftRight, 4),
        Mnemonic::Kshiftrq => (MaskKind::ShiftRight, 8),
        Mnemonic::Kunpckbw => (MaskKind::Unpack, 2),
        Mnemonic::Kunpckwd => (MaskKind::Unpack, 4),
        Mnemonic::Kunpckdq => (MaskKind::Unpack, 8),
        Mnemonic::Kortestb => (MaskKind::OrTest, 1),
        Mnemonic::Kortestw => (MaskKind::OrTest, 2),
        Mnemonic::Kortestd => (MaskKind::OrTest, 4),
        Mnemonic::Kortestq => (MaskKind::OrTest, 8),
        Mnemonic::Ktestb => (MaskKind::Test, 1),
        Mnemonic::Ktestw => (MaskKind::Test, 2),
        Mnemonic::Ktestd => (MaskKind::Test, 4),
        Mnemonic::Ktestq => (MaskKind::Test, 8),
        _ => return None,
    })
}
