//! Identifiers of debug files in Sentry's API: the first 16 bytes of the build id as a GUID.

use backtrail_pt::BuildId;

/// The bytes of a GUID.
const BYTES: usize = 16;

/// Returns whether a text is a build id: 2 to 64 bytes in lower-case hexadecimal digits.
#[must_use]
pub fn is_build_id(text: &str) -> bool {
    (4..=128).contains(&text.len())
        && text.len().is_multiple_of(2)
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns whether an id is made of the contents of a file that has no build id.
#[must_use]
pub fn is_file_hash(build_id: &str) -> bool {
    build_id
        .parse()
        .is_ok_and(|build_id: BuildId| build_id.file_hash().is_some())
}

/// Returns the debug identifier of a build id. Short build ids are filled with zeros.
///
/// ```
/// use backtrail_hub::symbols::debug_id::debug_id;
///
/// let id = debug_id("00112233445566778899aabbccddeeff01234567");
/// assert_eq!(id.as_deref(), Some("33221100-5544-7766-8899-aabbccddeeff"));
/// ```
#[must_use]
pub fn debug_id(build_id: &str) -> Option<String> {
    if !is_build_id(build_id) {
        return None;
    }
    let mut bytes = [0_u8; BYTES];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let digits = build_id.get(2 * at..2 * at + 2).unwrap_or("00");
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    // The first three numbers of a GUID are little-endian.
    bytes[0..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    let digits = crate::objects::hexadecimal(&bytes);
    Some(format!(
        "{}-{}-{}-{}-{}",
        &digits[0..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..32]
    ))
}

/// Returns whether a debug identifier, perhaps with an age at its end, is that of a build id.
#[must_use]
pub fn is_of(debug_identifier: &str, build_id: &str) -> bool {
    let wanted: String = debug_identifier
        .chars()
        .filter(|letter| *letter != '-')
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    let Some(own) = debug_id(build_id) else {
        return false;
    };
    let own = own.replace('-', "");
    match wanted.strip_prefix(&own) {
        Some(age) => age.len() <= 8 && age.bytes().all(|byte| byte == b'0'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_those_of_sentry_cli() {
        // `sentry-cli debug-files check` of a program whose build id `readelf -n` shows.
        let build_id = "c84c93b4cd1922423f7fe67b11f954b0bf6d33cf";
        assert_eq!(
            debug_id(build_id).unwrap(),
            "b4934cc8-19cd-4222-3f7f-e67b11f954b0"
        );
        assert!(is_of("B4934CC8-19CD-4222-3F7F-E67B11F954B0", build_id));
        assert!(is_of("b4934cc8-19cd-4222-3f7f-e67b11f954b0-0", build_id));
        assert!(!is_of("b4934cc8-19cd-4222-3f7f-e67b11f954b1", build_id));
        assert!(!is_of("b4934cc8", build_id));
        assert!(!is_of("", build_id));
    }

    #[test]
    fn short_build_ids_are_filled() {
        assert_eq!(debug_id("0102").unwrap(), "00000201-0000-0000-0000-000000000000");
        for text in ["", "ab", "abc", "ABCD", "../..", "zzzz", &"a".repeat(130)] {
            assert_eq!(debug_id(text), None, "{text}");
        }
    }
}
