//! `readMemory`.

use crate::failure::{Failure, Result};
use crate::handles::FrameKey;
use crate::protocol::types::{ReadMemoryArguments, ReadMemoryResponseBody};
use crate::session::ClientSession;
use backtrail_debugger::evaluation::memory;
use backtrail_decoder::Watch;

/// Bytes, up to the first that is not known.
pub fn read(
    client: &mut ClientSession,
    arguments: ReadMemoryArguments,
    watch: &Watch<'_>,
) -> Result<ReadMemoryResponseBody> {
    let debuggee = client.debuggee()?;
    let reference = &arguments.memory_reference;
    let none = || Failure::Cannot(format!("\"{reference}\" is not an address"));
    let at = address(reference, arguments.offset).ok_or_else(none)?;
    let count = u64::try_from(arguments.count).unwrap_or(0).min(memory::MAX_READ);
    let here = FrameKey {
        position: debuggee.navigator.position(),
        number: 0,
    };
    let read = debuggee.look_from(here, watch, |navigator| memory::read(navigator, at, count, watch))?;
    let missing = count.saturating_sub(read.bytes.len() as u64);
    Ok(ReadMemoryResponseBody {
        address: format!("{at:#x}"),
        data: Some(base64(&read.bytes)).filter(|data| !data.is_empty()),
        unreadable_bytes: (missing > 0).then_some(i64::try_from(missing).unwrap_or(i64::MAX)),
    })
}

/// Returns an address of the client plus an offset; `None` if it is invalid.
#[must_use]
pub fn address(reference: &str, offset: Option<i64>) -> Option<u64> {
    let reference = reference.trim();
    let at = match reference
        .strip_prefix("0x")
        .or_else(|| reference.strip_prefix("0X"))
    {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => reference.parse().ok()?,
    };
    at.checked_add_signed(offset.unwrap_or(0))
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut number = 0u32;
        for at in 0..3 {
            number = number << 8 | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let digit = (number >> (18 - 6 * at) & 63) as usize;
            let shown = DIGITS.get(digit).copied().unwrap_or(b'=');
            text.push(if at <= group.len() { char::from(shown) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base64() {
        // RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn addresses_have_offsets() {
        assert_eq!(address("0x10", Some(-8)), Some(8));
        assert_eq!(address(" 16 ", None), Some(16));
        for wrong in ["", "0x", "main", "-1"] {
            assert_eq!(address(wrong, None), None, "{wrong}");
        }
        assert_eq!(
            (address("0x1", Some(-2)), address("0xffffffffffffffff", Some(1))),
            (None, None)
        );
    }
}
