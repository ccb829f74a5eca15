//! Text of others as text: what it must not do to where it is shown.
//!
//! Function names, file names, names of threads, notes and values come from traces, and a trace
//! comes from anybody. Whatever shows them goes through here: the terminal by [`Text`](super::Text)
//! and [`visible`], JSON by [`write_json`], editors by the debug adapter.

use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};
use std::borrow::Cow;
use std::io::{self, Write};

/// Returns whether a character has no glyph but changes the surrounding text.
///
/// These are control characters, which can command a terminal, line separators, and characters that
/// reverse the order of letters (Unicode Standard Annex 9).
#[must_use]
pub fn is_invisible(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns text on one line, with U+FFFD in place of each [invisible](is_invisible) character.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    match text.contains(is_invisible) {
        true => Cow::Owned(text.replace(is_invisible, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

/// The same of text of several lines: what separates these, and tabs, stays.
#[must_use]
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    let is_bad = |char: char| is_invisible(char) && !matches!(char, '\n' | '\t');
    match text.contains(is_bad) {
        true => Cow::Owned(text.replace(is_bad, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

/// Returns text in which Markdown and VS Code's messages find no link, such as
/// `[text](command:...)`: a space separates `](`.
#[must_use]
pub fn unlinked(text: &str) -> Cow<'_, str> {
    match text.contains("](") {
        true => Cow::Owned(text.replace("](", "] (")),
        false => Cow::Borrowed(text),
    }
}

/// Writes a value as JSON in which no character is invisible: a terminal may be what reads it.
///
/// # Errors
/// When it cannot be written.
pub fn write_json(to: &mut (impl Write + ?Sized), value: &impl Serialize) -> io::Result<()> {
    value
        .serialize(&mut Serializer::with_formatter(to, Visible))
        .map_err(io::Error::from)
}

/// Writes what is invisible as `\uXXXX`.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, char)) = rest.char_indices().find(|(_, char)| is_invisible(*char)) {
            let (before, following) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = following.get(char.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        CompactFormatter.write_char_escape(writer, escape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\x1b]0;t\x07\u{9b}31m\u{7f}\r\nb\t\u{202e}c\u{2066}\u{2028}\u{e0041}ü \u{1f4a9}";

    #[test]
    fn what_is_invisible_is_replaced() {
        let shown = visible(HOSTILE);
        assert!(!shown.contains(is_invisible), "{shown:?}");
        assert_eq!(shown.chars().count(), HOSTILE.chars().count());
        assert!(shown.ends_with("ü \u{1f4a9}"));
        assert_eq!(visible_lines("a\n\tb\rc\x1b"), "a\n\tb\u{fffd}c\u{fffd}");
        assert!(matches!(visible("operator\"\" _ü"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_has_no_invisible_character_and_the_same_value() {
        let value = serde_json::json!({HOSTILE: [HOSTILE, "\"\\/"], "b": 1.5});
        let mut json = Vec::new();
        write_json(&mut json, &value).unwrap();
        let text = String::from_utf8(json).unwrap();
        assert!(!text.contains(is_invisible), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn links_are_broken() {
        assert_eq!(
            unlinked("no [Click](command:a.b) [x](y)"),
            "no [Click] (command:a.b) [x] (y)"
        );
        assert_eq!(unlinked("[[a](b)](c)"), "[[a] (b)] (c)");
    }
}
