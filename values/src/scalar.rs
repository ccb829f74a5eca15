//! Numbers, characters and enumerators as GDB writes them.

use super::arithmetic::{float, integer, is_integer, is_signed, unsupported};
use super::float::{digits, general};
use super::types::Base;
use backtrail_symbolizer::types::{Encoding, Language, Type, TypeKind};

/// A number of a base type, by its bytes; `bits`: how many of them count.
pub fn base(bytes: &[u8], base: &Base, bits: u64, language: Language) -> String {
    let encoding = base.encoding;
    if bytes.len() > 16 && is_integer(encoding) {
        return wide_integer(bytes, is_signed(encoding), bits)
            .unwrap_or_else(|| "<unknown: it has more bits than are supported>".to_owned());
    }
    let whole = |signed| integer(bytes, signed, bits).unwrap_or_default();
    match encoding {
        Encoding::Boolean => match whole(false) {
            0 => "false".to_owned(),
            1 => "true".to_owned(),
            other => other.to_string(),
        },
        Encoding::SignedChar | Encoding::UnsignedChar => {
            let number = whole(is_signed(encoding));
            let byte = number as u8;
            match language {
                Language::Rust if encoding == Encoding::UnsignedChar => number.to_string(),
                _ => format!("{number} '{}'", character(byte, '\'')),
            }
        }
        Encoding::Utf => {
            let number = whole(false);
            let found = u32::try_from(number).ok().and_then(char::from_u32);
            match found {
                Some(_) if bytes.len() == 1 => format!("{number} '{}'", character(number as u8, '\'')),
                Some(found) => format!("{number} '{}'", wide(found, '\'')),
                None => number.to_string(),
            }
        }
        Encoding::Float => match float(bytes) {
            Some(number) => general(number, digits(bytes.len())),
            None => "<unknown: it has more digits than are supported>".to_owned(),
        },
        Encoding::Address => format!("{:#x}", whole(false)),
        Encoding::Signed => whole(true).to_string(),
        Encoding::Unsigned => (whole(false) as u128).to_string(),
        Encoding::ComplexFloat => match bytes.split_at_checked(bytes.len() / 2) {
            Some((real, imaginary)) => {
                let part = |bytes: &[u8]| float(bytes).map(|number| general(number, digits(bytes.len())));
                match (part(real), part(imaginary)) {
                    (Some(real), Some(imaginary)) => format!("{real} + {imaginary}i"),
                    _ => "<unknown: it has more digits than are supported>".to_owned(),
                }
            }
            None => "<unknown: it has no components>".to_owned(),
        },
        _ => unsupported(base).text(),
    }
}

/// Writes a number of more than 128 bits; `None`: it has too many.
fn wide_integer(bytes: &[u8], signed: bool, bits: u64) -> Option<String> {
    const MAX_BYTES: usize = 1 << 10;
    let bits = usize::try_from(bits).ok().filter(|_| bytes.len() <= MAX_BYTES)?;
    let bit = |bit: usize| bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
    let negative = signed && bit(bits.checked_sub(1)?);
    // The bits of the magnitude, in words of 32 bits, the lowest first.
    let mut words = vec![0u32; bits.div_ceil(32)];
    let mut carry = negative;
    for number in 0..bits {
        let own = bit(number) ^ negative;
        let sum = own ^ carry;
        carry &= own;
        if let Some(word) = words.get_mut(number / 32).filter(|_| sum) {
            *word |= 1 << (number % 32);
        }
    }
    let mut digits = String::new();
    loop {
        let mut rest = 0u64;
        for word in words.iter_mut().rev() {
            let value = rest << 32 | u64::from(*word);
            (*word, rest) = ((value / 10) as u32, value % 10);
        }
        digits.insert(0, char::from(b'0' + rest as u8));
        while words.last() == Some(&0) {
            words.pop();
        }
        if words.is_empty() {
            let sign = if negative { "-" } else { "" };
            return Some(format!("{sign}{digits}"));
        }
    }
}

/// Returns a byte as a character in quotes.
pub fn character(byte: u8, quote: char) -> String {
    match byte {
        7 => "\\a".to_owned(),
        8 => "\\b".to_owned(),
        9 => "\\t".to_owned(),
        10 => "\\n".to_owned(),
        11 => "\\v".to_owned(),
        12 => "\\f".to_owned(),
        13 => "\\r".to_owned(),
        27 => "\\033".to_owned(),
        b'\\' => "\\\\".to_owned(),
        byte if char::from(byte) == quote => format!("\\{quote}"),
        32..=126 => char::from(byte).to_string(),
        byte => format!("\\{byte:03o}"),
    }
}

/// Returns a character of any width in quotes.
pub fn wide(found: char, quote: char) -> String {
    match u8::try_from(u32::from(found)) {
        Ok(byte) if byte < 128 => character(byte, quote),
        _ => found.to_string(),
    }
}

/// Returns the path before an enumerator's name.
pub fn path_of(described: &Type, scoped: bool) -> String {
    let name = described.name.as_deref();
    let path = match (described.language, scoped) {
        (Language::Cpp, true) | (Language::Rust, _) => name,
        (Language::Cpp, false) => name.and_then(|name| Some(name.rsplit_once("::")?.0)),
        _ => None,
    };
    path.map(|path| format!("{path}::")).unwrap_or_default()
}

/// The name of a number of an enumeration; of a combination of flags, the names of all.
pub fn enumerator(described: &Type, number: i128) -> String {
    let TypeKind::Enumeration(enumeration) = &described.kind else {
        return number.to_string();
    };
    let prefix = path_of(described, enumeration.scoped);
    let values = &enumeration.enumerators;
    if let Some((name, _)) = values.iter().find(|(_, value)| *value == number) {
        return format!("{prefix}{name}");
    }
    let is_flags = values
        .iter()
        .all(|(_, value)| *value >= 0 && value.count_ones() <= 1);
    if !is_flags || values.is_empty() {
        return number.to_string();
    }
    let (mut left, mut names) = (number, Vec::new());
    for (name, value) in values {
        let value = *value;
        if value != 0 && left & value == value {
            left &= !value;
            names.push(format!("{prefix}{name}"));
        }
    }
    if names.is_empty() {
        return match number {
            0 => "0".to_owned(),
            number => format!("(unknown: {number:#x})"),
        };
    }
    if left != 0 {
        names.push(format!("unknown: {left:#x}"));
    }
    format!("({})", names.join(" | "))
}

/// A number by a letter of `print/F` and `x/F`; `None`: there is no such letter.
pub fn lettered(bytes: &[u8], letter: char, encoding: Encoding, bits: u64) -> Option<String> {
    let mut value = integer(bytes, false, bits)? as u128;
    // The bits of a floating-point number are shown unchanged. As a character, its fraction is
    // dropped.
    if encoding == Encoding::Float && letter == 'c' {
        value = (float(bytes)? as i64) as u128;
    }
    let bits = if encoding == Encoding::Float {
        bytes.len() as u64 * 8
    } else {
        bits
    };
    let value_bytes = value.to_le_bytes();
    let signed = integer(&value_bytes, true, bits)?;
    Some(match letter {
        'x' => format!("{value:#x}"),
        'z' => format!("{value:#0width$x}", width = 2 + (bits.div_ceil(8) as usize) * 2),
        'd' => signed.to_string(),
        'u' => value.to_string(),
        'o' => match value {
            0 => "0".to_owned(),
            value => format!("0{value:o}"),
        },
        't' => format!("{value:b}"),
        'c' => {
            // The sign is that of the type: characters of C have one.
            let number = match is_signed(encoding) {
                true => i128::from(value as u8 as i8),
                false => i128::from(value as u8),
            };
            format!("{number} '{}'", character(value as u8, '\''))
        }
        'f' => match bytes.len() {
            2 | 4 | 8 | 10 | 16 if encoding == Encoding::Float || bytes.len() > 2 => match float(bytes) {
                Some(number) => general(number, digits(bytes.len())),
                None => return None,
            },
            _ => match is_signed(encoding) {
                true => signed.to_string(),
                false => value.to_string(),
            },
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_gdbs() {
        let base = |bytes: &[u8], encoding| {
            let bits = bytes.len() as u64 * 8;
            let ty = Base {
                name: "number".into(),
                size: bytes.len() as u64,
                encoding,
                bits,
            };
            super::base(bytes, &ty, bits, Language::C)
        };
        assert_eq!(base(&[0xfe, 0xff, 0xff, 0xff], Encoding::Signed), "-2");
        assert_eq!(base(&[0xfe, 0xff, 0xff, 0xff], Encoding::Unsigned), "4294967294");
        assert_eq!(base(&[97], Encoding::SignedChar), "97 'a'");
        assert_eq!(base(&[200], Encoding::SignedChar), "-56 '\\310'");
        assert_eq!(base(&[200], Encoding::UnsignedChar), "200 '\\310'");
        assert_eq!(base(&[1], Encoding::Boolean), "true");
        assert_eq!(base(&2.5f32.to_le_bytes(), Encoding::Float), "2.5");
    }

    #[test]
    fn integers_of_any_width_are_decimal() {
        let mut bytes = vec![0; 32];
        assert_eq!(wide_integer(&bytes, true, 200).as_deref(), Some("0"));
        bytes[24] = 1;
        let power = "6277101735386680763835789423207666416102355444464034512896";
        assert_eq!(wide_integer(&bytes, true, 200).as_deref(), Some(power));
        // The 193rd bit is the sign.
        let negative = format!("-{power}");
        assert_eq!(wide_integer(&bytes, true, 193), Some(negative));
        assert_eq!(wide_integer(&[0xff; 32], true, 200).as_deref(), Some("-1"));
        assert_eq!(wide_integer(&[0xff; 32], false, 3).as_deref(), Some("7"));
        assert_eq!(wide_integer(&[1; 2000], false, 16000), None);
    }

    #[test]
    fn letters_choose_the_form() {
        let form = |letter| lettered(&[0xff, 0xff, 0xff, 0xff], letter, Encoding::Signed, 32);
        assert_eq!(form('x').as_deref(), Some("0xffffffff"));
        assert_eq!(form('d').as_deref(), Some("-1"));
        assert_eq!(form('u').as_deref(), Some("4294967295"));
        assert_eq!(form('o').as_deref(), Some("037777777777"));
        assert_eq!(lettered(&[5], 't', Encoding::Signed, 8).as_deref(), Some("101"));
        assert_eq!(lettered(&[5], 'z', Encoding::Signed, 8).as_deref(), Some("0x05"));
        assert_eq!(
            lettered(&[97, 0, 0, 0], 'c', Encoding::Signed, 32).as_deref(),
            Some("97 'a'")
        );
        assert_eq!(form('q'), None);
        assert_eq!(
            lettered(&1.5f64.to_le_bytes(), 'x', Encoding::Float, 64).as_deref(),
            Some("0x3ff8000000000000")
        );
        assert_eq!(
            lettered(&3.9f64.to_le_bytes(), 'c', Encoding::Float, 64).as_deref(),
            Some("3 '\\003'")
        );
    }
}
