//! Comparisons of texts in vector registers.

use super::operands::operand;
use crate::execute::text::TextCompare;
use crate::operand::Operand;
use iced_x86::{EncodingKind, Instruction, Mnemonic as M};

/// Returns the operation and the operands of an instruction. `None`: it is another one.
pub fn lift(instruction: &Instruction) -> Option<(TextCompare, [Operand; 4])> {
    let (length, is_index) = match instruction.mnemonic() {
        M::Pcmpistri | M::Vpcmpistri => (None, true),
        M::Pcmpistrm | M::Vpcmpistrm => (None, false),
        M::Pcmpestri | M::Vpcmpestri => (Some(4), true),
        M::Pcmpestrm | M::Vpcmpestrm => (Some(4), false),
        M::Pcmpestri64 | M::Vpcmpestri64 => (Some(8), true),
        M::Pcmpestrm64 | M::Vpcmpestrm64 => (Some(8), false),
        _ => return None,
    };
    let compare = TextCompare {
        constant: instruction.immediate8(),
        length,
        is_index,
        keeps_upper: instruction.encoding() == EncodingKind::Legacy,
    };
    let none = Operand::None;
    let operands = [operand(instruction, 0)?, operand(instruction, 1)?, none, none];
    Some((compare, operands))
}
