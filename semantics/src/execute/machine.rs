//! The state and the memory on which an instruction works.

use crate::memory::{Memory, Stop};
use crate::operand::{self, Operand};
use crate::state::State;

/// The result of one part of a model.
pub type Done<M, T = ()> = Result<T, Stop<<M as Memory>::Error>>;

/// The registers and the memory of a thread.
pub struct Machine<'a, M> {
    /// The registers.
    pub state: &'a mut State,
    /// The memory.
    pub memory: &'a mut M,
}

impl<M: Memory> Machine<'_, M> {
    /// Returns the value of an operand of at most eight bytes.
    pub fn read(&mut self, operand: Operand) -> Done<M, u64> {
        operand.read(self.state, self.memory)
    }

    /// Writes an operand of at most eight bytes.
    pub fn write(&mut self, operand: Operand, value: u64) -> Done<M> {
        operand.write(self.state, self.memory, value)
    }

    /// Loads a number from memory.
    pub fn load(&mut self, address: u64, size: u8) -> Done<M, u64> {
        operand::load(self.memory, address, size)
    }

    /// Stores a number to memory.
    pub fn store(&mut self, address: u64, size: u8, value: u64) -> Done<M> {
        operand::store(self.memory, address, size, value)
    }

    /// Returns a flag.
    pub fn flag(&self, flag: u64) -> Done<M, bool> {
        self.state.flag(flag).ok_or(Stop::Undefined)
    }
}
