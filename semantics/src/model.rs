//! The model of an instruction: made once, applied often.

use crate::execute::string::Repeat;
use crate::execute::{Machine, Operation};
use crate::inverse::{self, Before};
use crate::lift;
use crate::memory::{Memory, Stop};
use crate::operand::Operand;
use crate::state::State;
use iced_x86::{Instruction, Mnemonic};

/// An instruction that has no model. A recorder logs its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not modeled")]
pub struct NotModeled(pub Mnemonic);

/// The model of an instruction at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    operation: Operation,
    operands: [Operand; 4],
    next: u64,
}

impl Model {
    /// Returns the model of an instruction.
    ///
    /// # Errors
    /// Fails if the instruction is not modeled.
    pub fn of(instruction: &Instruction) -> Result<Self, NotModeled> {
        let lifted = lift::lift(instruction);
        let (operation, operands) = lifted.ok_or(NotModeled(instruction.mnemonic()))?;
        Ok(Self {
            operation,
            operands,
            next: instruction.next_ip(),
        })
    }

    /// Returns the operands. The first one is the destination, if there is any.
    #[must_use]
    pub const fn operands(&self) -> &[Operand; 4] {
        &self.operands
    }

    /// Returns whether it may load bytes that it has stored itself.
    #[must_use]
    pub fn loads_own_stores(&self) -> bool {
        matches!(self.operation, Operation::String(string) if string.repeat != Repeat::Once)
    }

    /// Applies the instruction, and returns the address of the next one.
    ///
    /// # Errors
    /// Fails if the result cannot be known, or the processor would raise an exception. Then nothing
    /// is changed, except by the finished elements of a repeated string instruction.
    pub fn execute<M: Memory>(&self, state: &mut State, memory: &mut M) -> Result<u64, Stop<M::Error>> {
        let machine = &mut Machine { state, memory };
        match self.operation {
            Operation::Control(control) => return control.execute(&self.operands, machine, self.next),
            Operation::Integer(integer) => integer.execute(&self.operands, machine)?,
            Operation::Shift(shift) => shift.execute(&self.operands, machine)?,
            Operation::Bits(bits) => bits.execute(&self.operands, machine)?,
            Operation::Multiply(multiply) => multiply.execute(&self.operands, machine)?,
            Operation::String(string) => string.execute(machine)?,
            Operation::Text(text) => text.execute(&self.operands, machine)?,
            Operation::Vector(vector) => vector.execute(&self.operands, machine)?,
            Operation::Mask(mask) => mask.execute(&self.operands, machine)?,
        }
        Ok(self.next)
    }

    /// Returns the operands whose values before the instruction follow from the state after it, as
    /// those of sums, exchanges and the stack pointer. `memory` is that after the instruction.
    pub fn invert<M: Memory>(&self, after: &State, memory: &mut M) -> Vec<Before> {
        inverse::invert(self.operation, &self.operands, after, memory)
    }
}
