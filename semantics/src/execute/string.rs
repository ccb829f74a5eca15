//! String instructions with and without repetition.

use super::flags::subtract;
use super::machine::{Done, Machine};
use crate::memory::Memory;
use crate::state::flag;

const RAX: u8 = 0;
const RCX: usize = 1;
const RSI: usize = 6;
const RDI: usize = 7;

/// A string instruction, with addresses of eight bytes and no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringOperation {
    /// The operation on an element.
    pub element: Element,
    /// The size of an element in bytes.
    pub size: u8,
    /// The repetition.
    pub repeat: Repeat,
}

/// An operation on one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `movs`.
    Move,
    /// `stos`.
    Store,
    /// `lods`.
    Load,
    /// `scas`.
    Scan,
    /// `cmps`.
    Compare,
}

/// The end of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One element.
    Once,
    /// Until rcx is zero.
    Count,
    /// Until rcx is zero, or ZF is not this.
    While(bool),
}

impl StringOperation {
    /// Applies the operation.
    ///
    /// # Errors
    /// Fails as the memory does. The registers are those after the last finished element.
    pub fn execute<M: Memory>(self, machine: &mut Machine<'_, M>) -> Done<M> {
        if self.repeat == Repeat::Once {
            return self.one(machine);
        }
        while machine.state.general[RCX] != 0 {
            self.one(machine)?;
            machine.state.general[RCX] -= 1;
            if let Repeat::While(zero) = self.repeat
                && machine.flag(flag::ZERO)? != zero
            {
                break;
            }
        }
        Ok(())
    }

    fn one<M: Memory>(self, machine: &mut Machine<'_, M>) -> Done<M> {
        let size = self.size;
        let step = if machine.flag(flag::DIRECTION)? {
            -i64::from(size)
        } else {
            i64::from(size)
        };
        let (source, target) = (machine.state.general[RSI], machine.state.general[RDI]);
        match self.element {
            Element::Move => {
                let value = machine.load(source, size)?;
                machine.store(target, size, value)?;
            }
            Element::Store => {
                let value = machine.state.general_part(RAX, 0, size);
                machine.store(target, size, value)?;
            }
            Element::Load => {
                let value = machine.load(source, size)?;
                machine.state.set_general_part(RAX, 0, size, value);
            }
            Element::Scan => {
                let left = machine.state.general_part(RAX, 0, size);
                let right = machine.load(target, size)?;
                machine
                    .state
                    .set_flags(flag::STATUS, subtract(left, right, false, size).1);
            }
            Element::Compare => {
                let left = machine.load(source, size)?;
                let right = machine.load(target, size)?;
                machine
                    .state
                    .set_flags(flag::STATUS, subtract(left, right, false, size).1);
            }
        }
        let general = &mut machine.state.general;
        if !matches!(self.element, Element::Store | Element::Scan) {
            general[RSI] = source.wrapping_add_signed(step);
        }
        if self.element != Element::Load {
            general[RDI] = target.wrapping_add_signed(step);
        }
        Ok(())
    }
}
