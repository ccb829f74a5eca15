//! Parses a user's arguments for code images and address filters of raw PT.

use crate::manifest::AddressFilter;
use backtrail_pt::{Avma, FileOffset};
use std::path::PathBuf;
use std::str::FromStr;

/// Code for raw PT: `FILE[:OFFSET:SIZE][@ADDRESS]`.
///
/// An ELF file without an address loads where its program headers say; with one, it is loaded
/// there. Any other file, and a slice of any file, is raw bytes at the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageArg {
    /// The file.
    pub file: PathBuf,
    /// The offset and size of the part to use.
    pub slice: Option<(FileOffset, u64)>,
    /// The load address.
    pub address: Option<Avma>,
}

/// The error for a text that is not an image argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an image is FILE[:OFFSET:SIZE][@ADDRESS], with decimal or hexadecimal (0x) numbers")]
pub struct ParseImageArgError;

impl FromStr for ImageArg {
    type Err = ParseImageArgError;

    /// Splits off only a numeric suffix, because a file's name may contain `@` and `:`.
    fn from_str(text: &str) -> Result<Self, ParseImageArgError> {
        let (text, address) = match text.rsplit_once('@') {
            Some((head, tail)) if number(tail).is_some() => (head, number(tail).map(Avma)),
            _ => (text, None),
        };
        let slice = text.rsplit_once(':').and_then(|(head, size)| {
            let (file, offset) = head.rsplit_once(':')?;
            Some((file, FileOffset(number(offset)?), number(size)?))
        });
        let (file, slice) = match slice {
            Some((file, offset, size)) => (file, Some((offset, size))),
            None => (text, None),
        };
        if file.is_empty() {
            return Err(ParseImageArgError);
        }
        Ok(Self {
            file: file.into(),
            slice,
            address,
        })
    }
}

/// Parses `FROM-TO`; both addresses are included.
///
/// # Errors
/// Fails if the text is not two numbers in ascending order.
pub fn parse_address_filter(text: &str) -> Result<AddressFilter, String> {
    let filter = text.split_once('-').and_then(|(from, to)| {
        let filter = AddressFilter {
            from: Avma(number(from)?),
            to: Avma(number(to)?),
        };
        (filter.from <= filter.to).then_some(filter)
    });
    filter.ok_or_else(|| "an address filter is FROM-TO, the lower address first".to_owned())
}

/// Parses a decimal number, or a hexadecimal one with `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let image = |file: &str, slice: Option<(u64, u64)>, address: Option<u64>| ImageArg {
            file: file.into(),
            slice: slice.map(|(offset, size)| (FileOffset(offset), size)),
            address: address.map(Avma),
        };
        let cases = [
            ("a.out", image("a.out", None, None)),
            ("a.out@0x400000", image("a.out", None, Some(0x40_0000))),
            (
                "a.out:0x1000:512@4096",
                image("a.out", Some((0x1000, 512)), Some(4096)),
            ),
            ("a.out:16:32", image("a.out", Some((16, 32)), None)),
            ("user@host:x@0x10", image("user@host:x", None, Some(16))),
            ("odd@name", image("odd@name", None, None)),
            ("c:d:e", image("c:d:e", None, None)),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for bad in ["", "@0x1000", ":1:2@3"] {
            assert_eq!(bad.parse::<ImageArg>(), Err(ParseImageArgError), "{bad}");
        }
    }

    #[test]
    fn filters_are_two_addresses_in_order() {
        let filter = AddressFilter {
            from: Avma(0x1000),
            to: Avma(0x1fff),
        };
        assert_eq!(parse_address_filter("0x1000-0x1fff"), Ok(filter));
        for bad in ["", "1", "2-1", "-1", "1-", "0x-1", "+1-2", "1--2"] {
            assert!(parse_address_filter(bad).is_err(), "{bad}");
        }
    }
}
