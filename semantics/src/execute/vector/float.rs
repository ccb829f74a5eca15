//! Floating-point arithmetic by IEEE 754 with the processor's rules for NaN, rounded to nearest.
//!
//! The rules are those of the SDM, volume 1, section 4.8.3.5 and table 4-7: the first operand that
//! is NaN is the result, made quiet. An invalid operation makes the default NaN.

use super::lanes::{from_lanes, lane};
use crate::state::Vector;

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    /// The sum.
    Add,
    /// The difference.
    Subtract,
    /// The product.
    Multiply,
    /// The quotient.
    Divide,
    /// The smaller one, or the second.
    Min,
    /// The larger one, or the second.
    Max,
    /// The square root of the second.
    Root,
    /// The second, rounded to an integer by the constant.
    Round,
    /// All ones if the relation of the constant holds, else zero.
    Compare,
}

/// A product and a sum, rounded once. The roles of the operands are by the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// 132, 213 or 231.
    pub form: u16,
    /// Whether the product is negated.
    pub negate_product: bool,
    /// Whether the third number is subtracted: in even lanes, and in odd ones.
    pub subtract: [bool; 2],
}

/// A format of numbers.
#[derive(Clone, Copy)]
struct Format {
    /// All bits but the sign.
    magnitude: u64,
    /// The exponent of infinity.
    infinity: u64,
    /// The highest bit of the fraction, which makes NaN quiet.
    quiet: u64,
}

const SINGLE: Format = Format {
    magnitude: 0x7fff_ffff,
    infinity: 0x7f80_0000,
    quiet: 0x0040_0000,
};
const DOUBLE: Format = Format {
    magnitude: 0x7fff_ffff_ffff_ffff,
    infinity: 0x7ff0_0000_0000_0000,
    quiet: 0x0008_0000_0000_0000,
};

impl Format {
    const fn of(size: u8) -> Self {
        if size == 4 { SINGLE } else { DOUBLE }
    }

    const fn is_nan(self, bits: u64) -> bool {
        bits & self.magnitude > self.infinity
    }

    /// Returns the NaN of an invalid operation.
    const fn default_nan(self) -> u64 {
        (self.magnitude + 1) | self.infinity | self.quiet
    }

    /// Returns a computed result, or the default NaN for any NaN.
    const fn checked(self, bits: u64) -> u64 {
        if self.is_nan(bits) {
            self.default_nan()
        } else {
            bits
        }
    }
}

/// Returns whether a number is NaN.
pub fn is_nan(bits: u64, size: u8) -> bool {
    Format::of(size).is_nan(bits)
}

/// Returns the number of its bits as a double, which is exact for both sizes.
pub fn double(bits: u64, size: u8) -> f64 {
    if size == 4 {
        f64::from(f32::from_bits(bits as u32))
    } else {
        f64::from_bits(bits)
    }
}

impl Float {
    /// Applies the operation to lanes of four or eight bytes.
    pub fn apply(self, first: &Vector, second: &Vector, constant: u8, size: u8, length: u8) -> Vector {
        from_lanes(length, size, |at| {
            self.one(lane(first, at, size), lane(second, at, size), constant, size)
        })
    }

    fn one(self, left: u64, right: u64, constant: u8, size: u8) -> u64 {
        let format = Format::of(size);
        match self {
            Self::Compare => {
                if relation(constant, double(left, size), double(right, size)) {
                    u64::MAX
                } else {
                    0
                }
            }
            Self::Min | Self::Max => {
                let (a, b) = (double(left, size), double(right, size));
                let is_first = if matches!(self, Self::Min) { a < b } else { a > b };
                if is_first { left } else { right }
            }
            Self::Root | Self::Round if format.is_nan(right) => right | format.quiet,
            Self::Root if size == 4 => format.checked(f32::from_bits(right as u32).sqrt().to_bits().into()),
            Self::Root => format.checked(f64::from_bits(right).sqrt().to_bits()),
            Self::Round => round(right, constant, size),
            _ if format.is_nan(left) => left | format.quiet,
            _ if format.is_nan(right) => right | format.quiet,
            _ if size == 4 => {
                let (a, b) = (f32::from_bits(left as u32), f32::from_bits(right as u32));
                let result = match self {
                    Self::Add => a + b,
                    Self::Subtract => a - b,
                    Self::Multiply => a * b,
                    _ => a / b,
                };
                format.checked(result.to_bits().into())
            }
            _ => {
                let (a, b) = (f64::from_bits(left), f64::from_bits(right));
                let result = match self {
                    Self::Add => a + b,
                    Self::Subtract => a - b,
                    Self::Multiply => a * b,
                    _ => a / b,
                };
                format.checked(result.to_bits())
            }
        }
    }
}

impl Fused {
    /// Applies the operation to lanes: `third` is the old destination.
    pub fn apply(self, third: &Vector, first: &Vector, second: &Vector, size: u8, length: u8) -> Vector {
        from_lanes(length, size, |at| {
            // The operands in the order of the instruction: destination, second and third.
            let [one, two, three] = [third, first, second].map(|vector| lane(vector, at, size));
            let (left, right, sum) = match self.form {
                132 => (one, three, two),
                213 => (two, one, three),
                _ => (two, three, one),
            };
            self.one(left, right, sum, size, self.subtract[at % 2])
        })
    }

    fn one(self, left: u64, right: u64, sum: u64, size: u8, subtract: bool) -> u64 {
        let format = Format::of(size);
        for operand in [left, right, sum] {
            if format.is_nan(operand) {
                return operand | format.quiet;
            }
        }
        let sign = |bits: u64, is_negated: bool| {
            if is_negated {
                bits ^ (format.magnitude + 1)
            } else {
                bits
            }
        };
        let left = sign(left, self.negate_product);
        let sum = sign(sum, subtract);
        let bits = if size == 4 {
            let [left, right, sum] = [left, right, sum].map(|bits| f32::from_bits(bits as u32));
            left.mul_add(right, sum).to_bits().into()
        } else {
            let [left, right, sum] = [left, right, sum].map(f64::from_bits);
            left.mul_add(right, sum).to_bits()
        };
        format.checked(bits)
    }
}

/// Returns whether a relation holds, by its number in `cmpps` and its like.
pub fn relation(constant: u8, left: f64, right: f64) -> bool {
    let is_unordered = left.is_nan() || right.is_nan();
    let holds = match constant & 7 {
        0 | 4 => left == right,
        1 | 5 => left < right,
        2 | 6 => left <= right,
        _ => is_unordered,
    };
    let negated = constant & 4 != 0;
    let without_order = holds != negated;
    match (constant & 0x0f, constant & 8 != 0) {
        (_, false) => without_order,
        // equal, or unordered
        (8, _) => left == right || is_unordered,
        // not greater or equal, and not greater: true if unordered
        (9, _) => left < right || is_unordered,
        (10, _) => left <= right || is_unordered,
        // always false, and always true
        (11, _) => false,
        (15, _) => true,
        // not equal, and ordered
        (12, _) => left != right && !is_unordered,
        (13, _) => left >= right,
        _ => left > right,
    }
}

fn round(bits: u64, constant: u8, size: u8) -> u64 {
    let value = double(bits, size);
    let rounded = match constant & 7 {
        1 => value.floor(),
        2 => value.ceil(),
        3 => value.trunc(),
        _ => value.round_ties_even(),
    };
    // The sign of zero is that of the number.
    let rounded = rounded.copysign(value);
    if size == 4 {
        (rounded as f32).to_bits().into()
    } else {
        rounded.to_bits()
    }
}

/// Returns a number in the other format. A NaN keeps its upper bits and is quiet.
pub fn resized(bits: u64, from: u8) -> u64 {
    if from == 4 {
        if SINGLE.is_nan(bits) {
            let sign = bits >> 31 << 63;
            return sign | DOUBLE.infinity | DOUBLE.quiet | (bits & 0x003f_ffff) << 29;
        }
        return f64::from(f32::from_bits(bits as u32)).to_bits();
    }
    if DOUBLE.is_nan(bits) {
        let sign = bits >> 63 << 31;
        return sign | SINGLE.infinity | SINGLE.quiet | bits >> 29 & 0x003f_ffff;
    }
    (f64::from_bits(bits) as f32).to_bits().into()
}

/// Returns a number as a signed integer of `size` bytes. Numbers without a place become the least
/// integer.
pub fn to_integer(value: f64, truncates: bool, size: u8) -> u64 {
    let least = 1_u64 << (8 * u32::from(size) - 1);
    let limit = least as f64;
    let rounded = if truncates {
        value.trunc()
    } else {
        value.round_ties_even()
    };
    if rounded >= -limit && rounded < limit {
        (rounded as i64).cast_unsigned()
    } else {
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_those_of_the_manual() {
        let nan = f64::NAN;
        // (constant, 1 > 2, 1 = 1, 1 < 2, unordered)
        for (constant, greater, equal, less, unordered) in [
            (0, false, true, false, false),
            (1, false, false, true, false),
            (2, false, true, true, false),
            (3, false, false, false, true),
            (4, true, false, true, true),
            (5, true, true, false, true),
            (6, true, false, false, true),
            (7, true, true, true, false),
            (8, false, true, false, true),
            (9, false, false, true, true),
            (10, false, true, true, true),
            (11, false, false, false, false),
            (12, true, false, true, false),
            (13, true, true, false, false),
            (14, true, false, false, false),
            (15, true, true, true, true),
        ] {
            assert_eq!(relation(constant, 2.0, 1.0), greater, "{constant}: greater");
            assert_eq!(relation(constant, 1.0, 1.0), equal, "{constant}: equal");
            assert_eq!(relation(constant, 1.0, 2.0), less, "{constant}: less");
            assert_eq!(relation(constant, nan, 1.0), unordered, "{constant}: unordered");
        }
    }

    #[test]
    fn integers_without_a_place_are_the_least() {
        assert_eq!(to_integer(2.5, false, 4), 2);
        assert_eq!(to_integer(-2.7, true, 4) as u32, -2_i32 as u32);
        assert_eq!(to_integer(f64::NAN, true, 4), 0x8000_0000);
        assert_eq!(to_integer(2_147_483_648.0, true, 4), 0x8000_0000);
        assert_eq!(to_integer(9.3e18, true, 8), 1 << 63);
    }
}
