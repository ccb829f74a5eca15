//! Moves, sums, differences and logic on general registers and memory.

use super::flags::{add, condition, of_result, subtract};
use super::machine::{Done, Machine};
use crate::memory::{Memory, Stop};
use crate::operand::Operand;
use crate::state::{flag, ones, sign_extend};

/// An operation on integers. The first operand is the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integer {
    /// `mov`, `movzx`: the source, filled with zeros.
    Move,
    /// `movsx`, `movsxd`: the source, its sign extended.
    MoveSigned,
    /// `lea`.
    LoadAddress,
    /// `cmovcc`, by the bits of the condition.
    MoveIf(u8),
    /// `setcc`, by the bits of the condition.
    SetIf(u8),
    /// `xchg`.
    Exchange,
    /// `xadd`.
    ExchangeAdd,
    /// `cmpxchg`.
    CompareExchange,
    /// `cmpxchg8b` and `cmpxchg16b`, by the bytes of a half.
    CompareExchangePair(u8),
    /// `add`.
    Add,
    /// `adc`.
    AddCarry,
    /// `adcx` and `adox`, by the flag.
    AddCarryOf(u64),
    /// `sub`.
    Subtract,
    /// `sbb`.
    SubtractBorrow,
    /// `cmp`.
    Compare,
    /// `inc`.
    Increment,
    /// `dec`.
    Decrement,
    /// `neg`.
    Negate,
    /// `not`.
    Not,
    /// `and`.
    And,
    /// `or`.
    Or,
    /// `xor`.
    Xor,
    /// `test`.
    Test,
    /// `andn`.
    AndNot,
    /// `bswap`.
    SwapBytes,
    /// `movbe`.
    MoveSwapped,
    /// `cbw`, `cwde`, `cdqe`, by the size of the result.
    ExtendAccumulator(u8),
    /// `cwd`, `cdq`, `cqo`, by the size of the accumulator.
    SignToData(u8),
    /// `clc`, `stc`, `cld`, `std`, by the flag and its value.
    SetFlag(u64, bool),
    /// `cmc`.
    ComplementCarry,
    /// `sahf`.
    FlagsFromAh,
    /// Nothing but the next instruction.
    Nothing,
}

impl Integer {
    /// Applies the operation.
    pub fn execute<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        match self {
            Self::Nothing => Ok(()),
            Self::Move
            | Self::MoveSigned
            | Self::LoadAddress
            | Self::MoveIf(_)
            | Self::SetIf(_)
            | Self::SwapBytes
            | Self::MoveSwapped
            | Self::ExtendAccumulator(_)
            | Self::SignToData(_) => self.moves(operands, machine),
            Self::Exchange | Self::ExchangeAdd | Self::CompareExchange | Self::CompareExchangePair(_) => {
                self.exchange(operands, machine)
            }
            Self::SetFlag(..) | Self::ComplementCarry | Self::FlagsFromAh => self.change_flags(machine),
            _ => self.arithmetic(operands, machine),
        }
    }

    fn moves<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [target, source, ..] = *operands;
        let size = target.size();
        let value = match self {
            Self::LoadAddress => match source {
                Operand::Memory { address, .. } => address.offset(machine.state),
                _ => return Ok(()),
            },
            Self::MoveIf(code) => {
                let value = machine.read(source)?;
                if condition(code, machine.state).ok_or(Stop::Undefined)? {
                    value
                } else {
                    // The upper half is cleared in any case.
                    machine.read(target)?
                }
            }
            Self::SetIf(code) => u64::from(condition(code, machine.state).ok_or(Stop::Undefined)?),
            Self::SwapBytes => swap_bytes(machine.read(target)?, size),
            Self::MoveSwapped => swap_bytes(machine.read(source)?, size),
            Self::ExtendAccumulator(size) => {
                let half = machine.state.general_part(0, 0, size / 2);
                machine
                    .state
                    .set_general_part(0, 0, size, sign_extend(half, size / 2));
                return Ok(());
            }
            Self::SignToData(size) => {
                let value = machine.state.general_part(0, 0, size);
                let sign = if sign_extend(value, size) >> 63 == 1 {
                    u64::MAX
                } else {
                    0
                };
                machine.state.set_general_part(2, 0, size, sign);
                return Ok(());
            }
            Self::MoveSigned => sign_extend(machine.read(source)?, source.size()),
            _ => machine.read(source)?,
        };
        machine.write(target, value)
    }

    fn exchange<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [target, source, ..] = *operands;
        let size = target.size();
        if let Self::CompareExchangePair(half) = self {
            return compare_exchange_pair(target, half, machine);
        }
        let old = machine.read(target)?;
        match self {
            Self::Exchange => {
                let value = machine.read(source)?;
                machine.write(target, value)?;
                machine.write(source, old)
            }
            Self::ExchangeAdd => {
                let (sum, flags) = add(old, machine.read(source)?, false, size);
                if matches!(target, Operand::Memory { .. }) {
                    machine.write(target, sum)?;
                    machine.write(source, old)?;
                } else {
                    // The sum stays if both are one register.
                    machine.write(source, old)?;
                    machine.write(target, sum)?;
                }
                machine.state.set_flags(flag::STATUS, flags);
                Ok(())
            }
            _ => {
                let accumulator = machine.state.general_part(0, 0, size);
                let value = machine.read(source)?;
                let (_, flags) = subtract(accumulator, old, false, size);
                if flags & flag::ZERO != 0 {
                    machine.write(target, value)?;
                } else {
                    machine.write(target, old)?;
                    machine.state.set_general_part(0, 0, size, old);
                }
                machine.state.set_flags(flag::STATUS, flags);
                Ok(())
            }
        }
    }

    fn change_flags<M: Memory>(self, machine: &mut Machine<'_, M>) -> Done<M> {
        match self {
            Self::SetFlag(flag, value) => machine.state.set_flags(flag, if value { flag } else { 0 }),
            Self::ComplementCarry => {
                let carry = machine.flag(flag::CARRY)?;
                machine
                    .state
                    .set_flags(flag::CARRY, if carry { 0 } else { flag::CARRY });
            }
            _ => {
                let flags = machine.state.general_part(0, 8, 1);
                machine.state.set_flags(flag::STATUS & !flag::OVERFLOW, flags);
            }
        }
        Ok(())
    }

    fn arithmetic<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [target, source, other, _] = *operands;
        let size = target.size();
        let logic = |result: u64| (result, of_result(result, size));
        // AF is undefined after logic.
        let of_logic = flag::STATUS & !flag::ADJUST;
        let left = machine.read(target)?;
        let right = machine.read(source)?;
        let ((result, flags), written) = match self {
            Self::Add => (add(left, right, false, size), flag::STATUS),
            Self::AddCarry => {
                let carry = machine.flag(flag::CARRY)?;
                (add(left, right, carry, size), flag::STATUS)
            }
            Self::AddCarryOf(kept) => {
                let (sum, flags) = add(left, right, machine.flag(kept)?, size);
                ((sum, if flags & flag::CARRY == 0 { 0 } else { kept }), kept)
            }
            Self::Subtract | Self::Compare => (subtract(left, right, false, size), flag::STATUS),
            Self::SubtractBorrow => {
                let borrow = machine.flag(flag::CARRY)?;
                (subtract(left, right, borrow, size), flag::STATUS)
            }
            Self::Increment => (add(left, 1, false, size), flag::STATUS & !flag::CARRY),
            Self::Decrement => (subtract(left, 1, false, size), flag::STATUS & !flag::CARRY),
            Self::Negate => (subtract(0, left, false, size), flag::STATUS),
            Self::Not => ((!left, 0), 0),
            Self::Or => (logic(left | right), of_logic),
            Self::Xor => (logic(left ^ right), of_logic),
            Self::AndNot => {
                let kept = machine.read(other)?;
                let (result, flags) = logic(!right & kept);
                // PF is undefined, too.
                machine.write(target, result)?;
                machine.state.set_flags(of_logic & !flag::PARITY, flags);
                machine.state.undefine_flags(flag::ADJUST | flag::PARITY);
                return Ok(());
            }
            _ => (logic(left & right), of_logic),
        };
        if !matches!(self, Self::Compare | Self::Test) {
            machine.write(target, result)?;
        }
        machine.state.set_flags(written, flags);
        if written == of_logic {
            machine.state.undefine_flags(flag::ADJUST);
        }
        Ok(())
    }
}

/// Applies `cmpxchg8b` or `cmpxchg16b` to memory. `half` is the size of a half.
fn compare_exchange_pair<M: Memory>(target: Operand, half: u8, machine: &mut Machine<'_, M>) -> Done<M> {
    let Operand::Memory { address, .. } = target else {
        return Ok(());
    };
    let address = address.linear(machine.state);
    let mut bytes = [0; 16];
    let used = &mut bytes[..2 * usize::from(half)];
    machine.memory.load(address, used).map_err(Stop::Memory)?;
    let number = |part: &[u8]| {
        part.iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | u64::from(byte))
    };
    let (low, high) = used.split_at(usize::from(half));
    let old = (number(low), number(high));
    let state = &mut machine.state;
    let part = |register| state.general_part(register, 0, half);
    let is_equal = old == (part(0), part(2));
    let new = if is_equal { (part(3), part(1)) } else { old };
    let (low, high) = used.split_at_mut(usize::from(half));
    low.copy_from_slice(&new.0.to_le_bytes()[..usize::from(half)]);
    high.copy_from_slice(&new.1.to_le_bytes()[..usize::from(half)]);
    machine.memory.store(address, used).map_err(Stop::Memory)?;
    if is_equal {
        machine.state.set_flags(flag::ZERO, flag::ZERO);
    } else {
        machine.state.set_flags(flag::ZERO, 0);
        machine.state.set_general_part(0, 0, half, old.0);
        machine.state.set_general_part(2, 0, half, old.1);
    }
    Ok(())
}

/// Returns a number with its bytes in the other order. Of two bytes, as `movbe` does.
fn swap_bytes(value: u64, size: u8) -> u64 {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    (value << unused).swap_bytes() & ones(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_swapped_by_size() {
        assert_eq!(swap_bytes(0x1234, 2), 0x3412);
        assert_eq!(swap_bytes(0x1234_5678, 4), 0x7856_3412);
        assert_eq!(swap_bytes(1, 8), 1 << 56);
    }
}
