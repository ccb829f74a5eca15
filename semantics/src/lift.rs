//! From a decoded instruction to its operation and operands.

mod general;
mod mask;
mod operands;
mod text;
mod vector;

use crate::execute::Operation;
use crate::operand::Operand;
use iced_x86::{CodeSize, Instruction};

/// Returns the operation and the operands of an instruction. `None`: it is not modeled.
pub fn lift(instruction: &Instruction) -> Option<(Operation, [Operand; 4])> {
    if instruction.code_size() != CodeSize::Code64 || instruction.is_invalid() {
        return None;
    }
    if let Some((mask, operands)) = mask::lift(instruction) {
        return Some((Operation::Mask(mask), operands));
    }
    if let Some((text, operands)) = text::lift(instruction) {
        return Some((Operation::Text(text), operands));
    }
    if let Some((vector, operands)) = vector::lift(instruction) {
        return Some((Operation::Vector(vector), operands));
    }
    general::lift(instruction)
}
