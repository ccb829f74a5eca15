//! Strings in quotes, cut and shortened as GDB does.

use super::printable::is_visible;
use super::scalar::character;

/// The default number of shown elements of a string or an array.
pub const ELEMENTS: usize = 200;
/// The maximum of that number.
pub const MAX_ELEMENTS: usize = 1 << 16;
/// The number of equal elements that are shown as one.
pub const REPEATS: usize = 10;

/// Returns `"text"`, with runs of one character as `'x' <repeats 20 times>`, and `...` after a cut;
/// at most `limit` bytes.
pub fn quoted(bytes: &[u8], cut: bool, limit: usize) -> String {
    let shown = bytes.get(..limit).unwrap_or(bytes);
    let cut = cut || shown.len() < bytes.len();
    let mut parts = Vec::new();
    let mut open = String::new();
    let mut rest = shown;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|byte| **byte == first).count();
        let length = if run > REPEATS {
            close(&mut open, &mut parts);
            parts.push(format!("'{}' <repeats {run} times>", character(first, '\'')));
            run
        } else {
            let length = piece_length(rest);
            let piece = rest.get(..length).unwrap_or_default();
            open.push_str(&escaped(piece));
            length
        };
        rest = rest.get(length.max(1)..).unwrap_or_default();
    }
    close(&mut open, &mut parts);
    if parts.is_empty() {
        parts.push("\"\"".to_owned());
    }
    let mut text = parts.join(", ");
    if cut {
        text.push_str("...");
    }
    text
}

fn close(open: &mut String, parts: &mut Vec<String>) {
    if !open.is_empty() {
        parts.push(format!("\"{open}\""));
        open.clear();
    }
}

/// Returns the number of bytes of the first character in UTF-8, or 1 if it is not printable.
fn piece_length(bytes: &[u8]) -> usize {
    let longest = bytes.get(..4).unwrap_or(bytes);
    let valid = match std::str::from_utf8(longest) {
        Ok(text) => text,
        Err(error) => longest
            .get(..error.valid_up_to())
            .and_then(|valid| std::str::from_utf8(valid).ok())
            .unwrap_or(""),
    };
    let first = valid.chars().next();
    first.filter(|&first| is_visible(first)).map_or(1, char::len_utf8)
}

fn escaped(piece: &[u8]) -> String {
    match piece {
        [byte] => character(*byte, '"'),
        several => String::from_utf8_lossy(several).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(bytes: &[u8], cut: bool) -> String {
        super::quoted(bytes, cut, ELEMENTS)
    }

    #[test]
    fn runs_are_separated_and_long_ones_cut() {
        assert_eq!(quoted(b"hi", false), "\"hi\"");
        assert_eq!(quoted(b"", false), "\"\"");
        assert_eq!(quoted(b"a\"b\\\n\x01", false), "\"a\\\"b\\\\\\n\\001\"");
        assert_eq!(quoted(&[b'a'; 10], false), "\"aaaaaaaaaa\"");
        assert_eq!(quoted(&[b'a'; 11], false), "'a' <repeats 11 times>");
        let mut long = b"hi".to_vec();
        long.extend([0; 13]);
        assert_eq!(quoted(&long, false), "\"hi\", '\\000' <repeats 13 times>");
        assert!(quoted(&[b'a', b'b'].repeat(200), false).ends_with("\"..."));
        assert_eq!(quoted("é".as_bytes(), false), "\"é\"");
        // An unassigned character.
        assert_eq!(quoted("\u{162df}".as_bytes(), false), "\"\\360\\226\\213\\237\"");
    }
}
