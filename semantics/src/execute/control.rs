//! Branches, calls, and the stack.

use super::flags::condition;
use super::machine::{Done, Machine};
use crate::memory::{Memory, Stop};
use crate::operand::Operand;
use crate::state::{flag, ones};

const RCX: u8 = 1;
const RSP: usize = 4;
const RBP: usize = 5;

/// A branch, or an operation on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// `jmp` to the first operand.
    Jump,
    /// A conditional branch to the first operand, by the bits of the condition.
    JumpIf(u8),
    /// `jrcxz` and `jecxz`, by the size of the register.
    JumpIfCounterZero(u8),
    /// `loop`, by the size of the counter.
    Loop(u8),
    /// `loope` and `loopne`, by the size of the counter and ZF.
    LoopIf(u8, bool),
    /// `call` of the first operand.
    Call,
    /// `ret`; the first operand is the size of arguments.
    Return,
    /// `push`, by the size of the value.
    Push(u8),
    /// `pop`.
    Pop,
    /// `leave`.
    Leave,
}

impl Control {
    /// Applies the operation. Returns the address of the next instruction.
    pub fn execute<M: Memory>(
        self,
        operands: &[Operand; 4],
        machine: &mut Machine<'_, M>,
        next: u64,
    ) -> Done<M, u64> {
        let first = operands[0];
        match self {
            Self::Jump => machine.read(first),
            Self::JumpIf(code) => {
                let is_taken = condition(code, machine.state).ok_or(Stop::Undefined)?;
                if is_taken { machine.read(first) } else { Ok(next) }
            }
            Self::JumpIfCounterZero(size) => {
                let is_taken = machine.state.general_part(RCX, 0, size) == 0;
                if is_taken { machine.read(first) } else { Ok(next) }
            }
            Self::Loop(size) | Self::LoopIf(size, _) => {
                let count = machine.state.general_part(RCX, 0, size).wrapping_sub(1) & ones(size);
                let is_wanted = match self {
                    Self::LoopIf(_, zero) => machine.flag(flag::ZERO)? == zero,
                    _ => true,
                };
                machine.state.set_general_part(RCX, 0, size, count);
                if count != 0 && is_wanted {
                    machine.read(first)
                } else {
                    Ok(next)
                }
            }
            Self::Call => {
                let target = machine.read(first)?;
                push(machine, 8, next)?;
                Ok(target)
            }
            Self::Return => {
                let top = machine.state.general[RSP];
                let target = machine.load(top, 8)?;
                let arguments = machine.read(first)? & ones(2);
                machine.state.general[RSP] = top.wrapping_add(8).wrapping_add(arguments);
                Ok(target)
            }
            Self::Push(size) => {
                let value = machine.read(first)?;
                push(machine, size, value)?;
                Ok(next)
            }
            Self::Pop => {
                let top = machine.state.general[RSP];
                let size = first.size();
                let value = machine.load(top, size)?;
                // An address relative to rsp is computed afterwards.
                machine.state.general[RSP] = top.wrapping_add(u64::from(size));
                if let Err(stop) = machine.write(first, value) {
                    machine.state.general[RSP] = top;
                    return Err(stop);
                }
                Ok(next)
            }
            Self::Leave => {
                let frame = machine.state.general[RBP];
                let value = machine.load(frame, 8)?;
                machine.state.general[RSP] = frame.wrapping_add(8);
                machine.state.general[RBP] = value;
                Ok(next)
            }
        }
    }
}

fn push<M: Memory>(machine: &mut Machine<'_, M>, size: u8, value: u64) -> Done<M> {
    let top = machine.state.general[RSP].wrapping_sub(u64::from(size));
    machine.store(top, size, value)?;
    machine.state.general[RSP] = top;
    Ok(())
}
