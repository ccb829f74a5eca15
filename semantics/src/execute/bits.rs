//! Tests of bits, counts of bits, and selections of bits.

use super::flags::of_result;
use super::machine::{Done, Machine};
use crate::memory::{Memory, Stop};
use crate::operand::Operand;
use crate::state::{flag, ones, sign_extend};

/// The polynomial of CRC-32C, its bits reversed.
const CRC32C: u32 = 0x82f6_3b78;

/// An operation on bits. The first operand is the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// `bt`.
    Test,
    /// `bts`.
    TestAndSet,
    /// `btr`.
    TestAndReset,
    /// `btc`.
    TestAndComplement,
    /// `tzcnt`.
    TrailingZeros,
    /// `lzcnt`.
    LeadingZeros,
    /// `bsf`.
    ScanForward,
    /// `bsr`.
    ScanReverse,
    /// `popcnt`.
    Ones,
    /// `bextr`.
    Extract,
    /// `blsi`.
    IsolateLowest,
    /// `blsr`.
    ResetLowest,
    /// `blsmsk`.
    MaskLowest,
    /// `bzhi`.
    ZeroHigh,
    /// `pdep`.
    Deposit,
    /// `pext`.
    Gather,
    /// `crc32`.
    Crc32,
}

impl Bits {
    /// Applies the operation.
    pub fn execute<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [target, source, other, _] = *operands;
        match self {
            Self::Test | Self::TestAndSet | Self::TestAndReset | Self::TestAndComplement => {
                self.test(target, source, machine)
            }
            Self::Crc32 => {
                let data = machine.read(source)?;
                let crc = machine.read(target)? as u32;
                machine.write(target, u64::from(crc32(crc, data, source.size())))
            }
            Self::Deposit | Self::Gather => {
                let value = machine.read(source)?;
                let mask = machine.read(other)?;
                let result = if matches!(self, Self::Deposit) {
                    deposit(value, mask)
                } else {
                    gather(value, mask)
                };
                machine.write(target, result)
            }
            Self::ScanForward | Self::ScanReverse => self.scan(target, source, machine),
            Self::TrailingZeros | Self::LeadingZeros | Self::Ones => self.count(target, source, machine),
            _ => self.select(target, source, other, machine),
        }
    }

    /// Finds a bit that is set.
    ///
    /// Without one, processors leave the target as it is (SDM, "BSF"). The manual does not say what
    /// becomes of the upper half of a 64-bit register then.
    fn scan<M: Memory>(self, target: Operand, source: Operand, machine: &mut Machine<'_, M>) -> Done<M> {
        let value = machine.read(source)?;
        if value == 0 {
            if let Operand::General { number, size: 4, .. } = target {
                let whole = Operand::General {
                    number,
                    shift: 0,
                    size: 8,
                };
                if machine.read(whole)? >> 32 != 0 {
                    return Err(Stop::Undefined);
                }
            }
            machine.state.undefine_flags(flag::STATUS);
            machine.state.set_flags(flag::ZERO, flag::ZERO);
            return Ok(());
        }
        let index = match self {
            Self::ScanForward => value.trailing_zeros(),
            _ => value.ilog2(),
        };
        machine.write(target, u64::from(index))?;
        machine.state.undefine_flags(flag::STATUS);
        machine.state.set_flags(flag::ZERO, 0);
        Ok(())
    }

    fn count<M: Memory>(self, target: Operand, source: Operand, machine: &mut Machine<'_, M>) -> Done<M> {
        let size = target.size();
        let bits = u64::from(size) * 8;
        let value = machine.read(source)?;
        let result = match self {
            Self::TrailingZeros => u64::from(value.trailing_zeros()).min(bits),
            Self::LeadingZeros => u64::from(value.leading_zeros()) + bits - 64,
            _ => u64::from(value.count_ones()),
        };
        machine.write(target, result)?;
        if matches!(self, Self::Ones) {
            let zero = if value == 0 { flag::ZERO } else { 0 };
            machine.state.set_flags(flag::STATUS, zero);
            return Ok(());
        }
        let carry = if value == 0 { flag::CARRY } else { 0 };
        let zero = if result == 0 { flag::ZERO } else { 0 };
        machine.state.undefine_flags(flag::STATUS);
        machine.state.set_flags(flag::CARRY | flag::ZERO, carry | zero);
        Ok(())
    }

    /// Applies an operation of BMI1 or BMI2.
    fn select<M: Memory>(
        self,
        target: Operand,
        source: Operand,
        other: Operand,
        machine: &mut Machine<'_, M>,
    ) -> Done<M> {
        let size = target.size();
        let bits = u32::from(size) * 8;
        let value = machine.read(source)?;
        let choice = machine.read(other)?;
        let (result, carry) = match self {
            Self::Extract => {
                let (start, length) = ((choice & 0xff) as u32, (choice >> 8 & 0xff) as u32);
                let shifted = value.unbounded_shr(start);
                (shifted & !u64::MAX.unbounded_shl(length), false)
            }
            Self::IsolateLowest => (value & value.wrapping_neg(), value != 0),
            Self::ResetLowest => (value & value.wrapping_sub(1), value == 0),
            Self::MaskLowest => (value ^ value.wrapping_sub(1), value == 0),
            _ => {
                let index = (choice & 0xff) as u32;
                (value & !u64::MAX.unbounded_shl(index), index >= bits)
            }
        };
        let result = result & ones(size);
        machine.write(target, result)?;
        let flags = of_result(result, size) | if carry { flag::CARRY } else { 0 };
        machine
            .state
            .set_flags(flag::STATUS, flags & !(flag::PARITY | flag::OVERFLOW));
        machine.state.undefine_flags(flag::ADJUST | flag::PARITY);
        if matches!(self, Self::Extract) {
            machine.state.undefine_flags(flag::SIGN);
        }
        Ok(())
    }

    fn test<M: Memory>(self, target: Operand, source: Operand, machine: &mut Machine<'_, M>) -> Done<M> {
        let size = target.size();
        let bits = u64::from(size) * 8;
        let index = machine.read(source)?;
        let (place, value) = match (target, source) {
            // The index reaches beyond the operand.
            (Operand::Memory { address, .. }, Operand::General { .. }) => {
                let index = sign_extend(index, size).cast_signed();
                let unit = index.div_euclid(bits.cast_signed()) * i64::from(size);
                let offset = address.offset(machine.state).wrapping_add_signed(unit) & ones(address.size);
                let base = address.segment.map_or(0, |segment| machine.state.base(segment));
                let place = base.wrapping_add(offset);
                (Some(place), machine.load(place, size)?)
            }
            _ => (None, machine.read(target)?),
        };
        let bit = 1 << (index & (bits - 1));
        let result = match self {
            Self::Test => value,
            Self::TestAndSet => value | bit,
            Self::TestAndReset => value & !bit,
            _ => value ^ bit,
        };
        match place {
            _ if matches!(self, Self::Test) => {}
            Some(place) => machine.store(place, size, result)?,
            None => machine.write(target, result)?,
        }
        machine
            .state
            .undefine_flags(flag::STATUS & !(flag::CARRY | flag::ZERO));
        let carry = if value & bit != 0 { flag::CARRY } else { 0 };
        machine.state.set_flags(flag::CARRY, carry);
        Ok(())
    }
}

fn crc32(crc: u32, data: u64, size: u8) -> u32 {
    data.to_le_bytes()
        .iter()
        .take(usize::from(size))
        .fold(crc, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                crc >> 1 ^ if crc & 1 != 0 { CRC32C } else { 0 }
            })
        })
}

/// Spreads the low bits of a value to the bits of a mask.
fn deposit(value: u64, mut mask: u64) -> u64 {
    let mut result = 0;
    let mut at = 0;
    while mask != 0 {
        if value >> at & 1 != 0 {
            result |= mask & mask.wrapping_neg();
        }
        mask &= mask - 1;
        at += 1;
    }
    result
}

/// Collects the bits of a mask in the low bits.
fn gather(value: u64, mut mask: u64) -> u64 {
    let mut result = 0;
    let mut at = 0;
    while mask != 0 {
        if value & mask & mask.wrapping_neg() != 0 {
            result |= 1 << at;
        }
        mask &= mask - 1;
        at += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spread_and_collected() {
        assert_eq!(deposit(0b101, 0b1101_0000), 0b1001_0000);
        assert_eq!(gather(0b1001_0000, 0b1101_0000), 0b101);
    }

    #[test]
    fn crc_is_that_of_castagnoli() {
        // The check value of CRC-32C, from RFC 3720.
        let crc = b"123456789"
            .iter()
            .fold(u32::MAX, |crc, &byte| crc32(crc, u64::from(byte), 1));
        assert_eq!(!crc, 0xe306_9283);
    }
}
