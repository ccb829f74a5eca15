//! Characters and strings of every width: `97 L'a'`, `u"text"`, as GDB writes them.

use super::printable::is_visible;
use super::scalar::character;
use super::text::{REPEATS, quoted};
use super::types::{Base, Shape, Ty};
use backtrail_symbolizer::types::{Encoding, Language};

/// Names of names are followed this far.
const MAX_NAMES: usize = 64;

/// The code units of a string's characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// The prefix before the quotes.
    pub prefix: &'static str,
    /// In bytes: 1, 2 or 4.
    pub size: u64,
}

impl Units {
    /// Code units of one byte.
    pub const BYTES: Self = Self { prefix: "", size: 1 };

    /// Returns the code units of `size` bytes, whatever their type.
    pub fn of_size(size: u64) -> Self {
        match size {
            2 => Self { prefix: "u", size },
            4 => Self { prefix: "U", size },
            _ => Self::BYTES,
        }
    }

    /// Returns the code units of a type whose elements make strings.
    ///
    /// In C, `wchar_t` and similar types are typedefs of integers, so the name decides. A Rust
    /// `char` makes no strings.
    pub fn of(ty: &Ty) -> Option<Self> {
        let Shape::Base(Base { encoding, size, .. }) = ty.shape() else {
            return None;
        };
        let stripped = ty.stripped();
        if stripped.language() == Some(Language::Rust) && encoding == Encoding::Utf {
            return None;
        }
        match (encoding, size) {
            (Encoding::SignedChar | Encoding::UnsignedChar | Encoding::Utf, 1) => return Some(Self::BYTES),
            (Encoding::Signed | Encoding::Unsigned | Encoding::Utf, 2 | 4) => {}
            _ => return None,
        }
        let mut named = ty.clone();
        for _ in 0..MAX_NAMES {
            if let Some(prefix) = prefix(&named) {
                return Some(Self { prefix, size });
            }
            match named.below() {
                Some((_, below)) => named = below,
                None => break,
            }
        }
        (encoding == Encoding::Utf).then(|| Self::of_size(size))
    }

    /// The type, without what qualifies it, is called as one that has a letter of its own.
    pub fn has_letter(ty: &Ty) -> bool {
        prefix(ty).is_some() && Self::of(ty).is_some()
    }

    /// Returns whether the code unit is wider than a byte.
    pub fn is_wide(self) -> bool {
        self.size > 1
    }

    /// A character alone: its number, then itself in quotes.
    pub fn alone(self, number: i128) -> String {
        let mut after_hex = false;
        let mask = if self.size == 2 { 0xffff } else { u32::MAX };
        let shown = escaped(number as u32 & mask, '\'', &mut after_hex);
        format!("{number} {}'{shown}'", self.prefix)
    }

    /// Returns the string of little-endian bytes, with repeated characters shortened, and `...`
    /// after a cut.
    pub fn quoted(self, bytes: &[u8], cut: bool, limit: usize) -> String {
        if !self.is_wide() {
            return quoted(bytes, cut, limit);
        }
        let units: Vec<u32> = match self.size {
            2 => bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|unit| u16::from_le_bytes(*unit).into())
                .collect(),
            _ => bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|unit| u32::from_le_bytes(*unit))
                .collect(),
        };
        let shown = units.get(..limit).unwrap_or(&units);
        let cut = cut || shown.len() < units.len();
        let text = parts(&self.characters(shown)).join(", ");
        let more = if cut { "..." } else { "" };
        format!("{}{text}{more}", self.prefix)
    }

    /// Two units of UTF-16 may be one character.
    fn characters(self, units: &[u32]) -> Vec<u32> {
        let mut characters = Vec::new();
        let mut rest = units;
        while let Some((&first, after)) = rest.split_first() {
            rest = after;
            let second = after.first().copied();
            let pair = second.filter(|second| {
                self.size == 2 && (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(second)
            });
            characters.push(match pair {
                Some(second) => {
                    rest = after.get(1..).unwrap_or_default();
                    0x10000 + ((first & 0x3ff) << 10 | second & 0x3ff)
                }
                None => first,
            });
        }
        characters
    }
}

/// The letter of a type by its very name.
fn prefix(ty: &Ty) -> Option<&'static str> {
    match ty.own_name().as_deref()? {
        "wchar_t" => Some("L"),
        "char16_t" => Some("u"),
        "char32_t" => Some("U"),
        _ => None,
    }
}

/// Pieces in quotes, and runs.
fn parts(characters: &[u32]) -> Vec<String> {
    let mut parts = Vec::new();
    let mut open = String::new();
    let mut after_hex = false;
    let mut rest = characters;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|character| **character == first).count();
        let mut length = 1;
        if run > REPEATS {
            if !open.is_empty() {
                parts.push(format!("\"{open}\""));
                open.clear();
            }
            after_hex = false;
            let shown = escaped(first, '\'', &mut after_hex);
            parts.push(format!("'{shown}' <repeats {run} times>"));
            after_hex = false;
            length = run;
        } else {
            open.push_str(&escaped(first, '"', &mut after_hex));
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    if !open.is_empty() || parts.is_empty() {
        parts.push(format!("\"{open}\""));
    }
    parts
}

/// Returns a character in quotes; `after_hex` means that a preceding hexadecimal escape would
/// absorb a digit.
fn escaped(number: u32, quote: char, after_hex: &mut bool) -> String {
    let follows_hex = std::mem::take(after_hex);
    match char::from_u32(number) {
        Some(found) if found.is_ascii() => {
            let byte = number as u8;
            match follows_hex && found.is_ascii_hexdigit() {
                true => format!("\\{byte:03o}"),
                false => character(byte, quote),
            }
        }
        Some(found) if is_visible(found) => found.to_string(),
        _ if number <= 0o777 => format!("\\{number:03o}"),
        _ => {
            *after_hex = true;
            format!("\\x{number:x}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Units = Units { prefix: "L", size: 4 };
    const HALF: Units = Units { prefix: "u", size: 2 };

    fn wide(units: &[u32]) -> Vec<u8> {
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    fn half(units: &[u16]) -> Vec<u8> {
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    #[test]
    fn characters_alone_have_their_number() {
        assert_eq!(WIDE.alone(97), "97 L'a'");
        assert_eq!(WIDE.alone(-1), "-1 L'\\xffffffff'");
        assert_eq!(WIDE.alone(39), "39 L'\\''");
        assert_eq!(HALF.alone(0xd83d), "55357 u'\\xd83d'");
        assert_eq!(HALF.alone(0x20ac), "8364 u'€'");
        assert_eq!(WIDE.alone(0x85), "133 L'\\205'");
        assert_eq!(WIDE.alone(0x2028), "8232 L'\\x2028'");
        assert_eq!(WIDE.alone(0x202e), "8238 L'\\x202e'");
        assert_eq!(WIDE.alone(0x301), "769 L'\u{301}'");
    }

    #[test]
    fn strings_are_gdbs() {
        let text = |text: &str| wide(&text.chars().map(u32::from).collect::<Vec<_>>());
        assert_eq!(WIDE.quoted(&text("a \"b\"\n"), false, 200), "L\"a \\\"b\\\"\\n\"");
        assert_eq!(WIDE.quoted(&[], false, 200), "L\"\"");
        assert_eq!(WIDE.quoted(&text("é\0\0"), true, 200), "L\"é\\000\\000\"...");
        assert_eq!(
            WIDE.quoted(&text("xxxxxxxxxxxy"), false, 200),
            "L'x' <repeats 11 times>, \"y\""
        );
        assert_eq!(
            WIDE.quoted(&wide(&[120, 0x110000, 55, 0x80, 103]), false, 200),
            "L\"x\\x110000\\067\\200g\""
        );
        assert!(
            WIDE.quoted(&text(&"ab".repeat(101)), false, 200)
                .ends_with("ab\"...")
        );
    }

    #[test]
    fn surrogates_make_one_character_in_pairs_alone() {
        assert_eq!(
            HALF.quoted(&half(&[0xd83d, 0xde00, 0x21]), false, 200),
            "u\"😀!\""
        );
        assert_eq!(
            HALF.quoted(&half(&[97, 0xd83d, 98, 0xde00]), false, 200),
            "u\"a\\xd83d\\142\\xde00\""
        );
        assert_eq!(
            WIDE.quoted(&wide(&[0xd83d, 0xde00]), false, 200),
            "L\"\\xd83d\\xde00\""
        );
    }
}
