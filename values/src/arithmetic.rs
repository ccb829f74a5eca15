//! Arithmetic as C defines it on this machine.

use super::complex;
use super::float::{half, to_half};
use super::number::{Complex, Number, real};
use super::source::ValueSource;
use super::types::{Base, Shape, Ty};
use super::value::{Unavailable, Value};
use backtrail_symbolizer::types::Encoding;

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

/// Returns whether the values of an encoding are whole numbers.
pub fn is_integer(encoding: Encoding) -> bool {
    use Encoding::{Address, Boolean, Signed, SignedChar, Unsigned, UnsignedChar, Utf};
    matches!(
        encoding,
        Signed | Unsigned | SignedChar | UnsignedChar | Utf | Boolean | Address
    )
}

/// A number with a fraction out of its bytes. The value of an x87 number is rounded.
pub fn float(bytes: &[u8]) -> Option<f64> {
    match *bytes {
        [a, b] => Some(half(u16::from_le_bytes([a, b]))),
        [a, b, c, d] => Some(super::float::widened(u32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(f64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => super::float::extended(bytes),
    }
}

/// A value as a number, and the type it has in arithmetic; `None`: it is none.
pub fn number(value: &Value, source: &dyn ValueSource) -> Result<Option<(Number, Ty)>, Unavailable> {
    let signed = match value.ty.shape() {
        Shape::Base(base) if is_integer(base.encoding) => is_signed(base.encoding),
        Shape::Base(base) => {
            let number = fraction(&value.bytes(source)?, &base)?;
            return Ok(Some((number, value.ty.clone())));
        }
        Shape::Enumeration(described, _) => super::types::is_negative(&described),
        Shape::Pointer(..) => false,
        _ => return Ok(None),
    };
    let bytes = value.bytes(source)?;
    let bits = value.bit_count(bytes.len());
    if !signed && bits == 128 && bytes.last().is_some_and(|byte| byte >> 7 == 1) {
        return Err(Unavailable::Unknown("it is too large for arithmetic".into()));
    }
    match integer(&bytes, signed, bits) {
        Some(number) => Ok(Some((Number::Integer(number), value.ty.clone()))),
        None => Err(Unavailable::Unknown("it has too many bits for arithmetic".into())),
    }
}

/// A number with a fraction, or with an imaginary part.
fn fraction(bytes: &[u8], base: &Base) -> Result<Number, Unavailable> {
    if !is_supported(base) {
        return Err(unsupported(base));
    }
    let part = |bytes: &[u8]| {
        let why = "it has more digits than are supported";
        float(bytes).ok_or_else(|| Unavailable::Unknown(why.into()))
    };
    if base.encoding != Encoding::ComplexFloat {
        return part(bytes).map(Number::Float);
    }
    let (re, im) = bytes.split_at(bytes.len() / 2);
    Ok(Number::Complex(Complex {
        re: part(re)?,
        im: part(im)?,
    }))
}

/// Returns whether floating-point and complex numbers of a type are supported. Those of 16 bytes
/// are x87 numbers, not quadruple ones.
pub fn is_supported(base: &Base) -> bool {
    let part = match base.encoding {
        Encoding::Float => base.size,
        Encoding::ComplexFloat => base.size / 2,
        _ => return false,
    };
    let name = base.name.to_ascii_lowercase();
    match part {
        2 => !name.contains("bf"),
        4 | 8 => true,
        _ => part > 8 && !name.contains("128"),
    }
}

/// Returns the reason why numbers of a type have no value here.
pub fn unsupported(base: &Base) -> Unavailable {
    let why = match base.encoding {
        Encoding::BigEndian => "big-endian numbers are not supported".to_owned(),
        _ => format!("numbers of type {} are not supported", base.name),
    };
    Unavailable::Unknown(why.into())
}

/// Returns why operations on numbers of a type have no result, or `None` if they have one.
pub fn refused(ty: &Ty) -> Option<String> {
    let Shape::Base(base) = ty.shape() else {
        return None;
    };
    let cast = match base.encoding {
        Encoding::Float if base.size > 8 => "double",
        Encoding::ComplexFloat if base.size > 16 => return Some(no_arithmetic(&base)),
        _ if is_integer(base.encoding) && base.bits != base.size * 8 => "long",
        _ => return None,
    };
    Some(format!("{}; cast it to {cast} first", no_arithmetic(&base)))
}

fn no_arithmetic(base: &Base) -> String {
    format!("arithmetic with \"{}\" is not supported", base.name)
}

/// The type that a number takes part in arithmetic with.
pub fn promoted(ty: &Ty) -> Ty {
    match ty.shape() {
        Shape::Base(base) if base.encoding == Encoding::ComplexFloat => Ty::Base(base),
        Shape::Base(base) if base.encoding == Encoding::Float => match base.size {
            2 => Ty::Base(base),
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
    if let Some(ty) = complex::common(&left, &right) {
        return ty;
    }
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
    let unsupported = |ty| {
        let why = "a conversion to this type is not supported";
        Value::unavailable(ty, Unavailable::Unknown(why.into()))
    };
    let real = match number {
        Number::Integer(number) => number as f64,
        Number::Float(number) => number,
        Number::Complex(number) => number.re,
    };
    match (encoding, number) {
        (Encoding::Float, _) => match float_bytes(real, size) {
            Some(bytes) => Value::new(ty, bytes),
            None => unsupported(ty),
        },
        (Encoding::ComplexFloat, number) => {
            let im = match number {
                Number::Complex(number) => number.im,
                _ => 0.0,
            };
            match (float_bytes(real, size / 2), float_bytes(im, size / 2)) {
                (Some(re), Some(im)) => Value::new(ty, [re, im].concat()),
                _ => unsupported(ty),
            }
        }
        (Encoding::Boolean, number) => {
            let truth = is_true(number);
            Value::number(ty, i128::from(truth))
        }
        (encoding, Number::Integer(number)) if is_integer(encoding) => Value::number(ty, number),
        (encoding, _) if is_integer(encoding) => {
            // C defines no result of a number that does not fit.
            let bits = size.saturating_mul(8).min(127) as i32;
            match real.abs() < 2f64.powi(bits) {
                true => Value::number(ty, real as i128),
                false => Value::unavailable(
                    ty,
                    Unavailable::Unknown("the number does not fit into the type".into()),
                ),
            }
        }
        _ => unsupported(ty),
    }
}

/// Returns whether a number is true in the sense of C.
pub fn is_true(number: Number) -> bool {
    match number {
        Number::Integer(number) => number != 0,
        Number::Float(number) => number != 0.0,
        Number::Complex(number) => number.re != 0.0 || number.im != 0.0,
    }
}

/// The bytes of a number with a fraction, rounded to this size; `None`: there is no such type.
fn float_bytes(number: f64, size: u64) -> Option<Vec<u8>> {
    Some(match size {
        2 => to_half(number).to_le_bytes().to_vec(),
        4 => (number as f32).to_le_bytes().to_vec(),
        8 => number.to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// `left sign right`, both of type `ty`.
pub fn combined(sign: &str, left: Number, right: Number, ty: Ty) -> Result<Value, String> {
    if let Some(result) = complex::combined(sign, left, right, &ty) {
        return Ok(converted(Number::Complex(result?), ty));
    }
    let (left, right) = match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => (left, right),
        (left, right) => {
            let (left, right) = (real(left), real(right));
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
    let width = if ty.size() == Some(16) { 128 } else { 64 };
    let shift = |amount: i128| u32::try_from(amount).ok().filter(|amount| *amount < width);
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
/// comparison that they have.
pub fn compared(sign: &str, left: Number, right: Number) -> Option<bool> {
    use std::cmp::Ordering;
    let imaginary = |number| match number {
        Number::Complex(number) => number.im,
        _ => 0.0,
    };
    let order = match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => Some(left.cmp(&right)),
        (Number::Complex(_), _) | (_, Number::Complex(_)) => {
            if !matches!(sign, "==" | "!=") {
                return None;
            }
            let same = real(left) == real(right) && imaginary(left) == imaginary(right);
            same.then_some(Ordering::Equal)
        }
        (left, right) => real(left).partial_cmp(&real(right)),
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

    fn complex(re: f64, im: f64) -> Value {
        let bytes = [re.to_le_bytes(), im.to_le_bytes()].concat();
        Value::new(Ty::base("complex double", 16, Encoding::ComplexFloat), bytes)
    }

    fn read(value: &Value) -> Result<Option<Number>, Unavailable> {
        let source = crate::source::NoSource::because("nothing is known here");
        Ok(number(value, &source)?.map(|(number, _)| number))
    }

    #[test]
    fn complex_numbers_convert_by_parts() {
        let value = complex(-1.5, 0.25);
        let read_back = read(&value).unwrap().unwrap();
        assert_eq!(read_back, Number::Complex(Complex { re: -1.5, im: 0.25 }));
        let converted = |ty| read(&converted(read_back, ty)).unwrap().unwrap();
        assert_eq!(converted(Ty::double()), Number::Float(-1.5));
        assert_eq!(converted(Ty::int()), Number::Integer(-1));
        let flag = Ty::base("_Bool", 1, Encoding::Boolean);
        assert_eq!(converted(flag), Number::Integer(1));
        assert_eq!(compared("<", read_back, Number::Integer(1)), None);
        assert_eq!(compared("==", read_back, read_back), Some(true));
        assert_eq!(compared("!=", read_back, Number::Float(-1.5)), Some(true));
    }

    #[test]
    fn bytes_of_other_encodings_are_no_numbers() {
        for (name, size, encoding) in [
            ("_Decimal64", 8, Encoding::DecimalFloat),
            ("_Accum", 4, Encoding::Fixed),
            ("complex int", 8, Encoding::Unknown),
            ("__float128", 16, Encoding::Float),
            ("long double", 16, Encoding::Quadruple),
            ("__bf16", 2, Encoding::Float),
            ("int", 4, Encoding::BigEndian),
        ] {
            let value = Value::new(Ty::base(name, size, encoding), vec![1; size as usize]);
            assert!(read(&value).is_err(), "{name}");
            let made = converted(Number::Integer(1), Ty::base(name, size, encoding));
            let is_refused = matches!(made.data, crate::value::Data::Unavailable(_));
            assert!(is_refused || encoding == Encoding::Float && size == 2, "{name}");
        }
    }

    #[test]
    fn bits_beyond_those_of_the_type_do_not_count() {
        let bits = |bits, encoding| {
            let base = Base {
                name: "_BitInt(7)".into(),
                size: 1,
                encoding,
                bits,
            };
            Value::new(Ty::Base(base), vec![0x7d])
        };
        assert_eq!(read(&bits(7, Encoding::Signed)), Ok(Some(Number::Integer(-3))));
        assert_eq!(read(&bits(7, Encoding::Unsigned)), Ok(Some(Number::Integer(125))));
        assert!(refused(&bits(7, Encoding::Signed).ty).is_some());
        assert!(refused(&bits(8, Encoding::Signed).ty).is_none());
    }

    #[test]
    fn numbers_of_128_bits_shift_by_their_width() {
        let wide = Ty::base("__int128", 16, Encoding::Signed);
        let shifted = |amount| {
            let value = combined("<<", Number::Integer(1), Number::Integer(amount), wide.clone());
            value.map(|value| read(&value).unwrap().unwrap())
        };
        assert_eq!(shifted(100), Ok(Number::Integer(1 << 100)));
        assert!(shifted(128).is_err());
    }

    #[test]
    fn a_number_that_does_not_fit_is_not_converted() {
        let made = |number| converted(Number::Float(number), Ty::int());
        assert_eq!(read(&made(-7.9)), Ok(Some(Number::Integer(-7))));
        assert!(read(&made(1e30)).is_err() && read(&made(f64::NAN)).is_err());
        let truth = converted(Number::Float(0.5), Ty::base("bool", 1, Encoding::Boolean));
        assert_eq!(read(&truth), Ok(Some(Number::Integer(1))));
    }
}
