//! Integer arithmetic, comparisons and logic on the lanes of two vectors.

use super::lanes::{from_lanes, lane, signed_lane};
use crate::state::{Vector, ones, sign_extend};

/// An operation on two lanes of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// The sum.
    Add,
    /// The difference.
    Subtract,
    /// The sum, at most the largest signed number and at least the smallest.
    AddSigned,
    /// The sum, at most the largest unsigned number.
    AddUnsigned,
    /// The difference, within signed numbers.
    SubtractSigned,
    /// The difference, at least zero.
    SubtractUnsigned,
    /// The low half of the product.
    MultiplyLow,
    /// The high half of the signed product.
    MultiplyHighSigned,
    /// The high half of the unsigned product.
    MultiplyHigh,
    /// `pmulhrsw`.
    MultiplyRounded,
    /// The product of the low halves, as unsigned numbers.
    MultiplyHalves,
    /// The product of the low halves, as signed numbers.
    MultiplyHalvesSigned,
    /// The mean, rounded up.
    Average,
    /// The smaller unsigned number.
    Min,
    /// The smaller signed number.
    MinSigned,
    /// The larger unsigned number.
    Max,
    /// The larger signed number.
    MaxSigned,
    /// All ones if they are equal, else zero.
    Equal,
    /// All ones if the first one is larger as a signed number, else zero.
    Greater,
    /// Both.
    And,
    /// The second without the first.
    AndNot,
    /// Either.
    Or,
    /// Either, but not both.
    Xor,
    /// `psign`.
    Sign,
    /// The absolute value of the second.
    Absolute,
    /// The first, shifted left by the second.
    ShiftLeft,
    /// The first, shifted right by the second.
    ShiftRight,
    /// The first, shifted right with its sign by the second.
    ShiftRightSigned,
    /// The first, rotated left by the second.
    RotateLeft,
    /// The first, rotated right by the second.
    RotateRight,
}

impl Arithmetic {
    /// Applies the operation to all lanes of `size` bytes.
    pub fn apply(self, first: &Vector, second: &Vector, size: u8, length: u8) -> Vector {
        from_lanes(length, size, |at| {
            self.one(
                (lane(first, at, size), signed_lane(first, at, size)),
                (lane(second, at, size), signed_lane(second, at, size)),
                size,
            )
        })
    }

    /// Applies the operation to one pair of lanes. Each is given without and with its sign.
    fn one(self, (left, left_signed): (u64, i64), (right, right_signed): (u64, i64), size: u8) -> u64 {
        let bits = 8 * u32::from(size);
        let half = |value: u64| sign_extend(value, size / 2).cast_signed();
        let all = |condition: bool| if condition { u64::MAX } else { 0 };
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::AddSigned => saturated(left_signed + right_signed, size),
            Self::SubtractSigned => saturated(left_signed - right_signed, size),
            Self::AddUnsigned => (left + right).min(ones(size)),
            Self::SubtractUnsigned => left.saturating_sub(right),
            Self::MultiplyLow => left.wrapping_mul(right),
            Self::MultiplyHigh => (left * right) >> bits,
            Self::MultiplyHighSigned => ((left_signed * right_signed) >> bits).cast_unsigned(),
            Self::MultiplyRounded => ((((left_signed * right_signed) >> 14) + 1) >> 1).cast_unsigned(),
            Self::MultiplyHalves => (left & ones(size / 2)) * (right & ones(size / 2)),
            Self::MultiplyHalvesSigned => half(left).wrapping_mul(half(right)).cast_unsigned(),
            Self::Average => (left + right + 1) >> 1,
            Self::Min => left.min(right),
            Self::MinSigned => left_signed.min(right_signed).cast_unsigned(),
            Self::Max => left.max(right),
            Self::MaxSigned => left_signed.max(right_signed).cast_unsigned(),
            Self::Equal => all(left == right),
            Self::Greater => all(left_signed > right_signed),
            Self::And => left & right,
            Self::AndNot => !left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::Sign => left_signed.wrapping_mul(right_signed.signum()).cast_unsigned(),
            Self::Absolute => right_signed.unsigned_abs(),
            Self::ShiftLeft | Self::ShiftRight | Self::ShiftRightSigned => {
                self.shift((left, left_signed), right, bits)
            }
            Self::RotateLeft => rotate_left(left, (right % u64::from(bits)) as u32, size),
            Self::RotateRight => {
                let count = (right % u64::from(bits)) as u32;
                rotate_left(left, (bits - count) % bits, size)
            }
        }
    }

    fn shift(self, (value, signed): (u64, i64), count: u64, bits: u32) -> u64 {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self {
            Self::ShiftRightSigned => (signed >> count.min(63)).cast_unsigned(),
            _ if count >= bits => 0,
            Self::ShiftLeft => value << count,
            _ => value >> count,
        }
    }
}

/// Returns a number within the signed numbers of a size.
pub fn saturated(value: i64, size: u8) -> u64 {
    let largest = (ones(size) >> 1).cast_signed();
    value.clamp(-largest - 1, largest).cast_unsigned()
}

fn rotate_left(value: u64, count: u32, size: u8) -> u64 {
    let bits = 8 * u32::from(size);
    if count == 0 {
        return value;
    }
    value << count | value >> (bits - count)
}

/// Returns the lanes of `vector` shifted by one count, which may be larger than a lane.
pub fn shift_all(operation: Arithmetic, vector: &Vector, count: u64, size: u8, length: u8) -> Vector {
    let bits = 8 * u32::from(size);
    from_lanes(length, size, |at| {
        let pair = (lane(vector, at, size), signed_lane(vector, at, size));
        operation.shift(pair, count, bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturation_ends_at_the_size() {
        assert_eq!(saturated(200, 1), 127);
        assert_eq!(saturated(-200, 1), -128_i64 as u64);
        assert_eq!(saturated(-40_000, 2), -32_768_i64 as u64);
    }
}
