//! Products and quotients.

use super::machine::{Done, Machine};
use crate::memory::{Memory, Stop};
use crate::operand::Operand;
use crate::state::{flag, ones, sign_extend};

/// A multiplication or division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiply {
    /// `mul`: the accumulator by the first operand.
    Unsigned,
    /// `imul` with one operand.
    Signed,
    /// `imul` with two or three operands: the product of the last two goes to the first.
    Truncated,
    /// `mulx`: rdx by the third operand goes to the first (high) and the second (low).
    WithoutFlags,
    /// `div`.
    Divide,
    /// `idiv`.
    DivideSigned,
}

impl Multiply {
    /// Applies the operation.
    pub fn execute<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [first, second, third, _] = *operands;
        let size = first.size();
        match self {
            Self::Truncated => {
                let factors = match third {
                    Operand::None => [first, second],
                    _ => [second, third],
                };
                let mut product = 1;
                for factor in factors {
                    let value = machine.read(factor)?;
                    product *= i128::from(sign_extend(value, size).cast_signed());
                }
                machine.write(first, product as u64)?;
                set_overflow(
                    machine,
                    product != i128::from(sign_extend(product as u64, size).cast_signed()),
                );
                Ok(())
            }
            Self::WithoutFlags => {
                let factor = machine.read(third)?;
                let product = u128::from(machine.state.general_part(2, 0, size)) * u128::from(factor);
                machine.write(second, product as u64)?;
                // The high part stays if both are one register.
                machine.write(first, (product >> (8 * u32::from(size))) as u64)
            }
            Self::Unsigned => {
                let factor = machine.read(first)?;
                let product = u128::from(machine.state.general_part(0, 0, size)) * u128::from(factor);
                set_pair(machine, size, product);
                set_overflow(machine, product >> (8 * u32::from(size)) != 0);
                Ok(())
            }
            Self::Signed => {
                let signed = |value| i128::from(sign_extend(value, size).cast_signed());
                let factor = signed(machine.read(first)?);
                let product = signed(machine.state.general_part(0, 0, size)) * factor;
                set_pair(machine, size, product.cast_unsigned());
                set_overflow(machine, product != signed(product as u64));
                Ok(())
            }
            Self::Divide | Self::DivideSigned => {
                let divisor = machine.read(first)?;
                let (quotient, remainder) = self
                    .divide(pair(machine, size), divisor, size)
                    .ok_or(Stop::Division)?;
                let bits = 8 * u32::from(size);
                let result = u128::from(quotient & ones(size)) | u128::from(remainder & ones(size)) << bits;
                set_pair(machine, size, result);
                machine.state.undefine_flags(flag::STATUS);
                Ok(())
            }
        }
    }

    /// Returns the quotient and the remainder, or `None` if there are none.
    fn divide(self, dividend: u128, divisor: u64, size: u8) -> Option<(u64, u64)> {
        let bits = 8 * u32::from(size);
        if matches!(self, Self::Divide) {
            let divisor = u128::from(divisor & ones(size));
            let quotient = dividend.checked_div(divisor)?;
            return (quotient >> bits == 0).then_some((quotient as u64, (dividend % divisor) as u64));
        }
        let unused = 128 - 2 * bits;
        let dividend = (dividend << unused).cast_signed() >> unused;
        let divisor = i128::from(sign_extend(divisor, size).cast_signed());
        let quotient = dividend.checked_div(divisor)?;
        let remainder = dividend.checked_rem(divisor)?;
        let fits = quotient == i128::from(sign_extend(quotient as u64, size).cast_signed());
        fits.then_some((quotient as u64, remainder as u64))
    }
}

/// Returns the double-width accumulator: ax, or the pair of rdx and rax.
fn pair<M>(machine: &Machine<'_, M>, size: u8) -> u128 {
    let state = &machine.state;
    if size == 1 {
        return u128::from(state.general_part(0, 0, 2));
    }
    let high = u128::from(state.general_part(2, 0, size));
    high << (8 * u32::from(size)) | u128::from(state.general_part(0, 0, size))
}

fn set_pair<M>(machine: &mut Machine<'_, M>, size: u8, value: u128) {
    let state = &mut machine.state;
    if size == 1 {
        state.set_general_part(0, 0, 2, value as u64);
        return;
    }
    state.set_general_part(0, 0, size, value as u64);
    state.set_general_part(2, 0, size, (value >> (8 * u32::from(size))) as u64);
}

/// Sets CF and OF. The others are undefined.
fn set_overflow<M>(machine: &mut Machine<'_, M>, overflow: bool) {
    let both = flag::CARRY | flag::OVERFLOW;
    machine.state.undefine_flags(flag::STATUS);
    machine.state.set_flags(both, if overflow { both } else { 0 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_without_a_place_are_refused() {
        let divide = |dividend, divisor| Multiply::Divide.divide(dividend, divisor, 1);
        assert_eq!(divide(0xff, 2), Some((0x7f, 1)));
        assert_eq!(divide(0x200, 2), None);
        assert_eq!(divide(1, 0), None);
        let signed = |dividend, divisor| Multiply::DivideSigned.divide(dividend, divisor, 1);
        assert_eq!(signed(0xfff9, 2), Some((-3_i64 as u64, -1_i64 as u64)));
        assert_eq!(signed(0x80, 1), None);
        assert_eq!(
            Multiply::DivideSigned.divide(1 << 127, u64::MAX, 8),
            None,
            "the quotient of the least dividend and -1 has no place"
        );
    }
}
