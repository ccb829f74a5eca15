//! Arithmetic as C defines it on this machine.

use super::source::ValueSource;
use super::types::{Base, Shape, Ty};
use super::value::{Gap, Value};
use backtrail_symbolizer::types::Encoding;

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Whole.
    Integer(i128),
    /// With a fraction.
    Float(f64),
}

/// A type of C by its name, as GDB knows it without debug information.
pub fn built_in(name: &str) -> Option<Ty> {
    let (size, encoding) = match name {
        "void" => return Some(Ty::Void),
        "char" | "signed char" => (1, Encoding::SignedChar),
        "unsigned char" => (1, Encoding::UnsignedChar),
        "short" => (2, Encoding::Signed),
        "unsigned short" => (2, Encoding::Unsigned),
        "int" | "i32" => (4, Encoding::Signed),
        "unsigned int" | "u32" => (4, Encoding::Unsigned),
        "long" | "long long" | "i64" | "isize" => (8, Encoding::Signed),
        "unsigned long" | "unsigned long long" | "u64" | "usize" => (8, Encoding::Unsigned),
        "i8" => (1, Encoding::Signed),
        "u8" => (1, Encoding::Unsigned),
        "i16" => (2, Encoding::Signed),
        "u16" => (2, Encoding::Unsigned),
        "wchar_t" => (4, Encoding::Signed),
        "char8_t" => (1, Encoding::Utf),
        "char16_t" => (2, Encoding::Utf),
        "char32_t" => (4, Encoding::Utf),
        "float" | "f32" => (4, Encoding::Float),
        "double" | "f64" => (8, Encoding::Float),
        "long double" => (16, Encoding::Float),
        "_Bool" | "bool" => (1, Encoding::Boolean),
        _ => return None,
    };
    Some(Ty::base(name, size, encoding))
}

/// A whole number out of little-endian bytes; `bits`: how many of them count.
pub fn integer(bytes: &[u8], signed: bool, bits: u64) -> Option<i128> {
    let mut wide = [0u8; 16];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let bits = u32::try_from(bits).ok()?.min(128);
    let unused = 128 - bits;
    if unused == 128 {
        return Some(0);
    }
    let raw = u128::from_le_bytes(wide) << unused;
    Some(match signed {
        true => (raw as i128) >> unused,
        // 128 bits without a sign may not fit; no compiler's arithmetic goes so far.
        false => (raw >> unused) as i128,
    })
}

/// Returns whether the numbers of an encoding have a sign.
pub fn is_signed(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::Signed | Encoding::SignedChar)
}

/// A number with a fraction out of its bytes. The value of an x87 number is rounded.
pub fn float(bytes: &[u8]) -> Option<f64> {
    match *bytes {
        [a, b, c, d] => Some(super::float::widened(u32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(f64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => super::float::extended(bytes),
    }
}

/// A value as a number, and the type it has in arithmetic; `None`: it is none.
pub fn number(value: &Value, source: &dyn ValueSource) -> Result<Option<(Number, Ty)>, Gap> {
    let (signed, floating) = match value.ty.shape() {
        Shape::Base(Base { encoding, .. }) => (is_signed(encoding), encoding == Encoding::Float),
        Shape::Enumeration(described, _) => (super::types::is_negative(&described), false),
        Shape::Pointer(..) => (false, false),
        _ => return Ok(None),
    };
    let bytes = value.bytes(source)?;
    if let Shape::Base(base) = value.ty.shape()
        && floating
        && !is_read(&base.name, base.size)
    {
        return Err(Gap::Unknown("numbers of its type are not supported".into()));
    }
    if floating {
        return Ok(float(&bytes).map(|number| (Number::Float(number), value.ty.clone())));
    }
    let bits = value.bits.map_or(bytes.len() as u64 * 8, |bits| bits.size);
    if !signed && bits == 128 && bytes.last().is_some_and(|byte| byte >> 7 == 1) {
        return Err(Gap::Unknown("it is too large for arithmetic".into()));
    }
    Ok(integer(&bytes, signed, bits).map(|number| (Number::Integer(number), value.ty.clone())))
}

/// Returns whether floating-point numbers of a type are supported. Those of 16 bytes are x87
/// numbers, not quadruple ones.
pub fn is_read(name: &str, size: u64) -> bool {
    matches!(size, 4 | 8) || size > 8 && !name.contains("128")
}

/// The type that a number takes part in arithmetic with.
pub fn promoted(ty: &Ty) -> Ty {
    match ty.shape() {
        Shape::Base(base) if base.encoding == Encoding::Float => match base.size {
            4 => Ty::base("float", 4, Encoding::Float),
            _ => Ty::double(),
        },
        Shape::Base(base) if base.size > 8 => Ty::Base(base),
        Shape::Base(base) => match (base.size, is_signed(base.encoding)) {
            (8, true) => Ty::long(),
            (8, false) => Ty::unsigned_long(),
            (4, false) => Ty::base("unsigned int", 4, Encoding::Unsigned),
            _ => Ty::int(),
        },
        Shape::Enumeration(_, 8) => Ty::long(),
        Shape::Pointer(..) => Ty::unsigned_long(),
        _ => Ty::int(),
    }
}

/// The type of what two numbers make.
pub fn common(left: &Ty, right: &Ty) -> Ty {
    let (left, right) = (promoted(left), promoted(right));
    let rank = |ty: &Ty| match ty.shape() {
        Shape::Base(base) => {
            let floating = base.encoding == Encoding::Float;
            (floating, base.size, base.encoding == Encoding::Unsigned)
        }
        _ => (false, 4, false),
    };
    if rank(&left) >= rank(&right) { left } else { right }
}

/// A number as a value of a type: cut, and a fraction dropped, as the type asks.
pub fn converted(number: Number, ty: Ty) -> Value {
    let (encoding, size) = match ty.shape() {
        Shape::Base(base) => (base.encoding, base.size),
        _ => (Encoding::Unsigned, ty.size().unwrap_or(8)),
    };
    match (encoding, number) {
        (Encoding::Float, number) => {
            let number = match number {
                Number::Integer(number) => number as f64,
                Number::Float(number) => number,
            };
            let bytes = match size {
                4 => (number as f32).to_le_bytes().to_vec(),
                8 => number.to_le_bytes().to_vec(),
                _ => {
                    return Value::gap(
                        ty,
                        Gap::Unknown("a conversion to this type is not supported".into()),
                    );
                }
            };
            Value::new(ty, bytes)
        }
        (Encoding::Boolean, Number::Integer(number)) => Value::number(ty, i128::from(number != 0)),
        (_, Number::Integer(number)) => Value::number(ty, number),
        (_, Number::Float(number)) => Value::number(ty, number as i128),
    }
}

/// `left sign right`, both of type `ty`.
pub fn combined(sign: &str, left: Number, right: Number, ty: Ty) -> Result<Value, String> {
    let (left, right) = match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => (left, right),
        (left, right) => {
            let wide = |number| match number {
                Number::Integer(number) => number as f64,
                Number::Float(number) => number,
            };
            let (left, right) = (wide(left), wide(right));
            let result = match sign {
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                "/" => left / right,
                _ => return Err(format!("\"{sign}\" requires integers")),
            };
            return Ok(converted(Number::Float(result), ty));
        }
    };
    let by_zero = || "division by zero".to_owned();
    let shift = |amount: i128| u32::try_from(amount).ok().filter(|amount| *amount < 64);
    let result = match sign {
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right).ok_or_else(by_zero)?,
        "%" => left.checked_rem(right).ok_or_else(by_zero)?,
        "&" => left & right,
        "|" => left | right,
        "^" => left ^ right,
        "<<" => left.wrapping_shl(shift(right).ok_or("the shift count exceeds the width of the type")?),
        ">>" => left.wrapping_shr(shift(right).ok_or("the shift count exceeds the width of the type")?),
        _ => return Err(format!("\"{sign}\" is not understood")),
    };
    Ok(Value::number(ty, result))
}

/// Evaluates the comparison `left sign right` of numbers of one type; `None` if `sign` is not a
/// comparison.
pub fn compared(sign: &str, left: Number, right: Number) -> Option<bool> {
    let order = match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => Some(left.cmp(&right)),
        (Number::Integer(left), Number::Float(right)) => (left as f64).partial_cmp(&right),
        (Number::Float(left), Number::Integer(right)) => left.partial_cmp(&(right as f64)),
        (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
    };
    Some(match sign {
        "==" => order.is_some_and(|order| order.is_eq()),
        "!=" => order.is_none_or(|order| order.is_ne()),
        "<" => order.is_some_and(|order| order.is_lt()),
        ">" => order.is_some_and(|order| order.is_gt()),
        "<=" => order.is_some_and(|order| order.is_le()),
        ">=" => order.is_some_and(|order| order.is_ge()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_extended_by_their_sign() {
        assert_eq!(integer(&[0xff], true, 8), Some(-1));
        assert_eq!(integer(&[0xff], false, 8), Some(255));
        assert_eq!(integer(&[0b101], true, 3), Some(-3));
        assert_eq!(integer(&[0xff; 8], false, 64), Some(i128::from(u64::MAX)));
        assert_eq!(integer(&[1], true, 0), Some(0));
        assert_eq!(integer(&[0; 17], true, 8), None);
    }

    #[test]
    fn the_common_type_is_that_of_c() {
        let unsigned = Ty::base("unsigned int", 4, Encoding::Unsigned);
        assert_eq!(common(&Ty::char(), &Ty::char()).name(), "int");
        assert_eq!(common(&Ty::int(), &unsigned).name(), "unsigned int");
        assert_eq!(common(&unsigned, &Ty::long()).name(), "long");
        assert_eq!(common(&Ty::long(), &Ty::unsigned_long()).name(), "unsigned long");
        assert_eq!(common(&Ty::int(), &Ty::double()).name(), "double");
    }

    #[test]
    fn nothing_overflows_or_divides_by_zero() {
        let make =
            |sign, left, right| combined(sign, Number::Integer(left), Number::Integer(right), Ty::int());
        assert!(make("/", 1, 0).is_err());
        assert!(make("%", 1, 0).is_err());
        assert!(make("<<", 1, 64).is_err());
        assert!(make(">>", 1, -1).is_err());
        assert!(make("*", i128::MAX, 2).is_ok());
        assert!(make("/", i128::MIN, -1).is_err());
    }
}
