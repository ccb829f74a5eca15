//! From the state after an instruction back to operands before it.

use crate::execute::Operation;
use crate::execute::control::Control;
use crate::execute::integer::Integer;
use crate::execute::shift::Shift;
use crate::execute::string::{Element, Repeat, StringOperation};
use crate::memory::Memory;
use crate::operand::Operand;
use crate::state::{State, flag, ones};

const RSP: u8 = 4;
const RBP: u8 = 5;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// The value of an operand before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The operand. Of a general register, only this part is known.
    pub operand: Operand,
    /// Its value.
    pub value: u64,
}

/// Returns the operands whose values before an instruction follow from the state after it. Memory
/// that is unknown adds nothing.
pub fn invert<M: Memory>(
    operation: Operation,
    operands: &[Operand; 4],
    after: &State,
    memory: &mut M,
) -> Vec<Before> {
    let mut found = Vec::new();
    match operation {
        Operation::Integer(integer) => integers(integer, operands, after, memory, &mut found),
        Operation::Shift(shift @ (Shift::RotateLeft | Shift::RotateRight)) => {
            rotations(shift, operands, after, memory, &mut found);
        }
        Operation::Control(control) => stack(control, operands, after, &mut found),
        Operation::String(string) => strings(string, after, &mut found),
        _ => {}
    }
    found
}

const fn register(number: u8) -> Operand {
    Operand::General {
        number,
        shift: 0,
        size: 8,
    }
}

/// Returns whether a write to `target` leaves `other` and the address of `target` as they are.
fn is_independent(target: Operand, other: Operand) -> bool {
    let number = |operand: Operand| match operand {
        Operand::General { number, .. } => Some(number),
        _ => None,
    };
    match (target, other) {
        (Operand::General { .. }, Operand::General { .. }) => number(target) != number(other),
        (Operand::General { number, .. }, Operand::Memory { address, .. }) => {
            address.base != Some(number) && address.index != Some(number)
        }
        // Two places in memory can overlap.
        (Operand::Memory { .. }, Operand::Memory { .. }) => false,
        _ => true,
    }
}

fn integers<M: Memory>(
    integer: Integer,
    operands: &[Operand; 4],
    after: &State,
    memory: &mut M,
    found: &mut Vec<Before>,
) {
    let [target, source, ..] = *operands;
    let mask = ones(target.size());
    let mut read = |operand: Operand| operand.read(after, memory).ok();
    let value = match integer {
        Integer::Move => {
            // The source of a move is the result, as far as it reaches.
            if is_independent(target, source) && matches!(source, Operand::General { .. }) {
                let size = source.size().min(target.size());
                if let (Some(value), Operand::General { number, shift, .. }) = (read(target), source) {
                    let operand = Operand::General { number, shift, size };
                    found.push(Before {
                        operand,
                        value: value & ones(size),
                    });
                }
            }
            None
        }
        Integer::Exchange if is_independent(target, source) && is_independent(source, target) => {
            if let (Some(left), Some(right)) = (read(target), read(source)) {
                found.push(Before {
                    operand: source,
                    value: left,
                });
                Some(right)
            } else {
                None
            }
        }
        Integer::Add if is_independent(target, source) => read(target)
            .zip(read(source))
            .map(|(sum, part)| sum.wrapping_sub(part)),
        Integer::Subtract if is_independent(target, source) => read(target)
            .zip(read(source))
            .map(|(rest, part)| rest.wrapping_add(part)),
        Integer::Xor if is_independent(target, source) => {
            read(target).zip(read(source)).map(|(result, part)| result ^ part)
        }
        Integer::Increment => read(target).map(|value| value.wrapping_sub(1)),
        Integer::Decrement => read(target).map(|value| value.wrapping_add(1)),
        Integer::Negate => read(target).map(u64::wrapping_neg),
        Integer::Not => read(target).map(|value| !value),
        Integer::SwapBytes => {
            read(target).map(|value| value.swap_bytes() >> (64 - 8 * u32::from(target.size())))
        }
        Integer::LoadAddress => return addresses(operands, after, found),
        _ => None,
    };
    if let Some(value) = value {
        found.push(Before {
            operand: target,
            value: value & mask,
        });
    }
}

/// Inverts `lea` whose destination is a part of the address.
fn addresses(operands: &[Operand; 4], after: &State, found: &mut Vec<Before>) {
    let [
        Operand::General { number, size: 8, .. },
        Operand::Memory { address, .. },
        ..,
    ] = *operands
    else {
        return;
    };
    // A multiple of the destination has several solutions.
    let is_base = address.base == Some(number) && address.index != Some(number);
    let is_index = address.index == Some(number) && address.base != Some(number) && address.scale == 1;
    if address.size != 8 || !(is_base || is_index) {
        return;
    }
    let mut without = address;
    if is_base {
        without.base = None;
    } else {
        without.index = None;
    }
    let result = after.general_part(number, 0, 8);
    found.push(Before {
        operand: register(number),
        value: result.wrapping_sub(without.offset(after)),
    });
}

fn rotations<M: Memory>(
    shift: Shift,
    operands: &[Operand; 4],
    after: &State,
    memory: &mut M,
    found: &mut Vec<Before>,
) {
    let [target, count, ..] = *operands;
    if !is_independent(target, count) {
        return;
    }
    let (Ok(value), Ok(count)) = (target.read(after, memory), count.read(after, memory)) else {
        return;
    };
    let size = target.size();
    let bits = 8 * u64::from(size);
    let count = (count & if size == 8 { 63 } else { 31 }) % bits;
    let left = if matches!(shift, Shift::RotateLeft) {
        (bits - count) % bits
    } else {
        count
    };
    let value = if left == 0 {
        value
    } else {
        value << left | value >> (bits - left)
    };
    found.push(Before {
        operand: target,
        value: value & ones(size),
    });
}

/// Finds the stack pointer.
fn stack(control: Control, operands: &[Operand; 4], after: &State, found: &mut Vec<Before>) {
    let top = after.general_part(RSP, 0, 8);
    let first = operands[0];
    let is_stack_pointer = matches!(first, Operand::General { number: RSP, .. });
    let (number, value) = match control {
        Control::Push(size) => (RSP, top.wrapping_add(u64::from(size))),
        Control::Call => (RSP, top.wrapping_add(8)),
        // `pop rsp` forgets the old one.
        Control::Pop if is_stack_pointer => return,
        Control::Pop => (RSP, top.wrapping_sub(u64::from(first.size()))),
        Control::Return => match first {
            Operand::Immediate(size) => (RSP, top.wrapping_sub(8 + (size & ones(2)))),
            _ => (RSP, top.wrapping_sub(8)),
        },
        Control::Leave => (RBP, top.wrapping_sub(8)),
        _ => return,
    };
    found.push(Before {
        operand: register(number),
        value,
    });
}

/// Finds the pointers of an instruction for one element.
fn strings(string: StringOperation, after: &State, found: &mut Vec<Before>) {
    let Some(is_down) = after.flag(flag::DIRECTION) else {
        return;
    };
    if string.repeat != Repeat::Once {
        return;
    }
    let step = u64::from(string.size);
    let numbers: &[u8] = match string.element {
        Element::Move | Element::Compare => &[RSI, RDI],
        Element::Store | Element::Scan => &[RDI],
        Element::Load => &[RSI],
    };
    for &number in numbers {
        let value = after.general_part(number, 0, 8);
        let value = if is_down {
            value.wrapping_add(step)
        } else {
            value.wrapping_sub(step)
        };
        found.push(Before {
            operand: register(number),
            value,
        });
    }
}
