//! Numbers with a fraction as C's `%g` writes them.

/// Returns `number` with at most `digits` significant digits.
pub fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        // After widening from 32 bits, the number has 29 more bits.
        let narrow = if digits == 9 { 29 } else { 0 };
        return format!(
            "{sign}nan(0x{:x})",
            (number.to_bits() & ((1 << 52) - 1)) >> narrow
        );
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let digits = digits.max(1);
    let scientific = format!("{:.*e}", digits - 1, number);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{number:.decimals$}")).to_owned()
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// Returns the number of digits that distinguishes a number of `size` bytes from all others.
pub fn digits(size: usize) -> usize {
    match size {
        2 => 5,
        4 => 9,
        8 => 17,
        _ => 18,
    }
}

/// Returns a number of 32 bits. A NaN keeps its sign and its payload, which a conversion need not
/// keep.
pub fn widened(bits: u32) -> f64 {
    let number = f32::from_bits(bits);
    if number.is_nan() {
        let (sign, payload) = (u64::from(bits >> 31), u64::from(bits & ((1 << 23) - 1)));
        return f64::from_bits(sign << 63 | 0x7ff << 52 | payload << 29);
    }
    number.into()
}

/// Returns a number of 16 bits (IEEE 754, binary16).
pub fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if bits & 0x3ff == 0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// Rounds a number to 16 bits, to the even one of two that are as near.
pub fn to_half(number: f64) -> u16 {
    let sign = if number.is_sign_negative() { 0x8000 } else { 0 };
    let size = number.abs();
    if number.is_nan() {
        return sign | 0x7e00;
    }
    // From here on, numbers round to infinity.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // The exponent of the unit in the last place; the smallest numbers all have the same.
    let exponent = (size.to_bits() >> 52) as i32 - 1023;
    let unit = exponent.max(-14) - 10;
    let units = (size * 2f64.powi(-unit)).round_ties_even() as u16;
    // The leading bit of `units` counts one exponent up.
    sign | ((((unit + 24) as u16) << 10) + units)
}

/// An x87 number of 80 bits, if one of 64 bits is the same.
pub fn extended(bytes: &[u8]) -> Option<f64> {
    let significand = u64::from_le_bytes(*bytes.first_chunk()?);
    let high = u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    let exponent = i32::from(high & 0x7fff);
    let sign = if high >> 15 == 1 { -1.0 } else { 1.0 };
    if significand == 0 && exponent == 0 {
        return Some(sign * 0.0);
    }
    if exponent == 0x7fff {
        let infinite = significand << 1 == 0;
        return Some(if infinite { sign * f64::INFINITY } else { f64::NAN });
    }
    let exact = significand as f64;
    let scale = exponent - 16383 - 63;
    let in_range = (-1000..900).contains(&scale);
    (exact as u128 == u128::from(significand) && in_range).then(|| sign * exact * 2f64.powi(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_printf_does() {
        for (number, digits, expected) in [
            (1.5, 17, "1.5"),
            (3.24, 17, "3.2400000000000002"),
            (0.1f32.into(), 9, "0.100000001"),
            (1e100, 17, "1e+100"),
            (1.0e-5, 17, "1.0000000000000001e-05"),
            (0.0001, 17, "0.0001"),
            (123_456_789.0, 9, "123456789"),
            (1_234_567_890.0, 9, "1.23456789e+09"),
            (-0.0, 9, "-0"),
            (f64::INFINITY, 9, "inf"),
            (100.0, 9, "100"),
            (widened(u32::MAX), 9, "-nan(0x7fffff)"),
        ] {
            assert_eq!(general(number, digits), expected);
        }
    }

    #[test]
    fn half_numbers_are_read_and_rounded() {
        for (bits, number) in [
            (0x3e00, 1.5),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f64.powi(-24)),
            (0x0400, 2f64.powi(-14)),
            (0x7c00, f64::INFINITY),
            (0x2e66, 0.0999755859375),
        ] {
            assert_eq!(half(bits), number);
            assert_eq!(to_half(number), bits);
        }
        assert!((0..=u16::MAX).all(|bits| half(bits).is_nan() || to_half(half(bits)) == bits));
        assert_eq!(to_half(0.1), 0x2e66);
        assert_eq!(to_half(1.0 + 2f64.powi(-11)), 0x3c00);
        assert_eq!(to_half(1.0 + 3.0 * 2f64.powi(-11)), 0x3c02);
        assert_eq!(to_half(65519.9), 0x7bff);
        assert_eq!(to_half(1e9), 0x7c00);
        assert_eq!(general(half(0x2e66), digits(2)), "0.099976");
    }

    #[test]
    fn extended_numbers_are_exact_or_nothing() {
        let bytes = |significand: u64, high: u16| {
            let mut bytes = significand.to_le_bytes().to_vec();
            bytes.extend(high.to_le_bytes());
            bytes.extend([0; 6]);
            bytes
        };
        assert_eq!(extended(&bytes(1 << 63, 16383)), Some(1.0));
        assert_eq!(
            extended(&bytes(0xc000_0000_0000_0000, 16384 | 0x8000)),
            Some(-3.0)
        );
        assert_eq!(extended(&bytes(0xc000_0000_0000_0001, 16384)), None);
        assert_eq!(extended(&[1, 2, 3]), None);
    }
}
