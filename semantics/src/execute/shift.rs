//! Shifts and rotations.

use super::flags::{of_result, sign_bit};
use super::machine::{Done, Machine};
use crate::memory::Memory;
use crate::operand::Operand;
use crate::state::{flag, ones, sign_extend};

/// A shift or a rotation. The first operand is the destination, and the second the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// `shl`.
    Left,
    /// `shr`.
    Right,
    /// `sar`.
    RightSigned,
    /// `rol`.
    RotateLeft,
    /// `ror`.
    RotateRight,
    /// `rcl`.
    RotateCarryLeft,
    /// `rcr`.
    RotateCarryRight,
    /// `shld` of four or eight bytes: the third operand is the count.
    DoubleLeft,
    /// `shrd` of four or eight bytes: the third operand is the count.
    DoubleRight,
    /// `shlx`: no flags, and the second operand is shifted by the third.
    LeftWithoutFlags,
    /// `shrx`.
    RightWithoutFlags,
    /// `sarx`.
    RightSignedWithoutFlags,
    /// `rorx`.
    RotateWithoutFlags,
}

impl Shift {
    /// Applies the operation.
    pub fn execute<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [target, source, other, _] = *operands;
        match self {
            Self::LeftWithoutFlags
            | Self::RightWithoutFlags
            | Self::RightSignedWithoutFlags
            | Self::RotateWithoutFlags => self.without_flags(target, source, other, machine),
            Self::DoubleLeft | Self::DoubleRight => self.double(target, source, other, machine),
            Self::RotateCarryLeft | Self::RotateCarryRight => self.through_carry(target, source, machine),
            Self::RotateLeft | Self::RotateRight => self.rotate(target, source, machine),
            _ => self.shift(target, source, machine),
        }
    }

    fn without_flags<M: Memory>(
        self,
        target: Operand,
        source: Operand,
        count: Operand,
        machine: &mut Machine<'_, M>,
    ) -> Done<M> {
        let size = target.size();
        let value = machine.read(source)?;
        let count = masked(machine.read(count)?, size);
        let result = match self {
            Self::LeftWithoutFlags => value << count,
            Self::RightWithoutFlags => value >> count,
            Self::RightSignedWithoutFlags => {
                (sign_extend(value, size).cast_signed() >> count).cast_unsigned()
            }
            _ => rotate_right(value, count, size),
        };
        machine.write(target, result)
    }

    fn shift<M: Memory>(self, target: Operand, count: Operand, machine: &mut Machine<'_, M>) -> Done<M> {
        let size = target.size();
        let bits = u32::from(size) * 8;
        let value = machine.read(target)?;
        let count = masked(machine.read(count)?, size);
        if count == 0 {
            return machine.write(target, value);
        }
        let sign = value & sign_bit(size) != 0;
        // The last bit that leaves is in the lowest bit of `last`.
        let (result, last) = match self {
            Self::Left if count > bits => (0, 0),
            Self::Left => (value.unbounded_shl(count), value >> (bits - count)),
            Self::Right => (value.unbounded_shr(count), value.unbounded_shr(count - 1)),
            _ => {
                let value = sign_extend(value, size).cast_signed();
                let shifted = |count: u32| (value >> count.min(63)).cast_unsigned();
                (shifted(count), shifted(count - 1))
            }
        };
        machine.write(target, result)?;
        let carry = if last & 1 != 0 { flag::CARRY } else { 0 };
        let overflow = match self {
            Self::Left => (result & sign_bit(size) != 0) != (carry != 0),
            Self::Right => sign,
            _ => false,
        };
        let flags = of_result(result, size) | carry | if overflow { flag::OVERFLOW } else { 0 };
        let state = &mut machine.state;
        state.set_flags(flag::STATUS, flags);
        state.undefine_flags(flag::ADJUST);
        if count != 1 {
            state.undefine_flags(flag::OVERFLOW);
        }
        if count >= bits && !matches!(self, Self::RightSigned) {
            state.undefine_flags(flag::CARRY);
        }
        Ok(())
    }

    fn rotate<M: Memory>(self, target: Operand, count: Operand, machine: &mut Machine<'_, M>) -> Done<M> {
        let size = target.size();
        let bits = u32::from(size) * 8;
        let value = machine.read(target)?;
        let count = masked(machine.read(count)?, size);
        let is_left = matches!(self, Self::RotateLeft);
        let right = if is_left {
            (bits - count % bits) % bits
        } else {
            count % bits
        };
        let result = rotate_right(value, right, size);
        machine.write(target, result)?;
        if count == 0 {
            return Ok(());
        }
        let high = result & sign_bit(size) != 0;
        let (carry, other) = if is_left {
            (result & 1 != 0, high)
        } else {
            (high, result & (sign_bit(size) >> 1) != 0)
        };
        set_carry_and_overflow(machine, carry, carry != other, count);
        Ok(())
    }

    fn through_carry<M: Memory>(
        self,
        target: Operand,
        count: Operand,
        machine: &mut Machine<'_, M>,
    ) -> Done<M> {
        let size = target.size();
        let bits = u32::from(size) * 8;
        let value = machine.read(target)?;
        let count = masked(machine.read(count)?, size);
        if count == 0 {
            return machine.write(target, value);
        }
        let carry = machine.flag(flag::CARRY)?;
        let is_left = matches!(self, Self::RotateCarryLeft);
        // The carry is the bit above the value.
        let wide = u128::from(value) | u128::from(carry) << bits;
        let width = bits + 1;
        let right = if is_left {
            (width - count % width) % width
        } else {
            count % width
        };
        let mask = (1_u128 << width) - 1;
        let rotated = (wide >> right | wide << (width - right)) & mask;
        let result = rotated as u64 & ones(size);
        let carry = rotated >> bits & 1 != 0;
        machine.write(target, result)?;
        let high = result & sign_bit(size) != 0;
        let other = if is_left {
            carry
        } else {
            result & (sign_bit(size) >> 1) != 0
        };
        set_carry_and_overflow(machine, carry, high != other, count);
        Ok(())
    }

    fn double<M: Memory>(
        self,
        target: Operand,
        source: Operand,
        count: Operand,
        machine: &mut Machine<'_, M>,
    ) -> Done<M> {
        let size = target.size();
        let bits = u32::from(size) * 8;
        let value = machine.read(target)?;
        let filler = machine.read(source)?;
        let count = masked(machine.read(count)?, size);
        if count == 0 {
            return machine.write(target, value);
        }
        let (result, last) = if matches!(self, Self::DoubleLeft) {
            (
                value << count | filler >> (bits - count),
                value >> (bits - count) & 1,
            )
        } else {
            (
                value >> count | filler << (bits - count),
                value >> (count - 1) & 1,
            )
        };
        let result = result & ones(size);
        machine.write(target, result)?;
        let mut flags = of_result(result, size);
        if last != 0 {
            flags |= flag::CARRY;
        }
        if (value ^ result) & sign_bit(size) != 0 {
            flags |= flag::OVERFLOW;
        }
        machine.state.set_flags(flag::STATUS, flags);
        machine.state.undefine_flags(flag::ADJUST);
        if count != 1 {
            machine.state.undefine_flags(flag::OVERFLOW);
        }
        Ok(())
    }
}

/// Sets CF, and OF if the count is one. Otherwise OF is undefined.
fn set_carry_and_overflow<M: Memory>(machine: &mut Machine<'_, M>, carry: bool, overflow: bool, count: u32) {
    let flags = if carry { flag::CARRY } else { 0 } | if overflow { flag::OVERFLOW } else { 0 };
    machine.state.set_flags(flag::CARRY | flag::OVERFLOW, flags);
    if count != 1 {
        machine.state.undefine_flags(flag::OVERFLOW);
    }
}

/// Returns a count as the processor takes it.
fn masked(count: u64, size: u8) -> u32 {
    (count & if size == 8 { 63 } else { 31 }) as u32
}

/// Rotates the low `size` bytes to the right by less than all bits.
fn rotate_right(value: u64, count: u32, size: u8) -> u64 {
    let bits = u32::from(size) * 8;
    let value = value & ones(size);
    if count == 0 {
        return value;
    }
    (value >> count | value << (bits - count)) & ones(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_keep_all_bits() {
        assert_eq!(rotate_right(0x81, 1, 1), 0xc0);
        assert_eq!(rotate_right(0x1234, 4, 2), 0x4123);
        assert_eq!(rotate_right(1, 1, 8), 1 << 63);
    }
}
