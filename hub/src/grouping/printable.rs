//! Texts with printable characters and a limited length, for signatures and titles.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Returns whether a character has a visible form of its own, or is a space.
///
/// Control characters, line separators, and characters that change the direction or the joining of
/// their neighbors have none. With them, a name could look like another name.
#[must_use]
pub fn is_printable(letter: char) -> bool {
    if letter.is_control() {
        return false;
    }
    !matches!(
        u32::from(letter),
        0xad | 0x61c
            | 0x115f..=0x1160
            | 0x180b..=0x180f
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x206f
            | 0x3164
            | 0xd800..=0xf8ff
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff0..=0xffff
            | 0xe0000..=0x10_ffff
    )
}

/// Returns the text with a question mark for each character that cannot be printed.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if is_printable(letter) { letter } else { '?' })
        .collect()
}

/// Returns a text of at most `limit` bytes. A longer text ends with `~` and eight digits of its
/// hash, so that two long texts with an equal start stay different.
///
/// `limit` is 9 or more.
#[must_use]
pub fn limited(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut short = text[..text.floor_char_boundary(limit.saturating_sub(9))].to_owned();
    short.push('~');
    for byte in Sha256::digest(text.as_bytes()).iter().take(4) {
        let _ = write!(short, "{byte:02x}");
    }
    short
}

/// Returns the first `limit` bytes of a text, with an ellipsis in place of the rest.
#[must_use]
pub fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut short = text[..text.floor_char_boundary(limit.saturating_sub(3))]
        .trim_end()
        .to_owned();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_replaced() {
        assert_eq!(printable("a\u{202e}b\nc\u{7f}\u{200d}ü漢"), "a?b?c??ü漢");
    }

    #[test]
    fn long_texts_with_equal_starts_stay_different() {
        let (one, two) = ("ü".repeat(200) + "1", "ü".repeat(200) + "2");
        let (one, two) = (limited(&one, 255), limited(&two, 255));
        assert!(one.len() <= 255 && two.len() <= 255);
        assert_ne!(one, two);
        assert_eq!(limited("short", 255), "short");
    }

    #[test]
    fn shortened_text_ends_with_an_ellipsis() {
        assert_eq!(shortened("abcdefgh", 6), "abc…");
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert!(shortened(&"漢".repeat(99), 20).len() <= 20);
    }
}
