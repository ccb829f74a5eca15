//! The last message of a process: its kind, the text of a panic, and a form without variable parts.

use super::CauseKind;
use crate::grouping::printable::is_printable;

/// Phrases of run-time libraries, and the kind of crash that they report. The first match counts.
const PHRASES: &[(&str, CauseKind)] = &[
    ("std::bad_alloc", CauseKind::OutOfMemory),
    ("memory allocation of ", CauseKind::OutOfMemory),
    ("out of memory", CauseKind::OutOfMemory),
    ("Out of memory", CauseKind::OutOfMemory),
    ("cannot allocate memory", CauseKind::OutOfMemory),
    ("Cannot allocate memory", CauseKind::OutOfMemory),
    ("has overflowed its stack", CauseKind::StackOverflow),
    ("goroutine stack exceeds", CauseKind::StackOverflow),
    (": stack-overflow on", CauseKind::StackOverflow),
    ("stack smashing detected", CauseKind::StackCorruption),
    ("buffer overflow detected", CauseKind::StackCorruption),
    ("stack-buffer-overflow", CauseKind::StackCorruption),
    ("double free", CauseKind::HeapCorruption),
    ("corrupted size vs. prev_size", CauseKind::HeapCorruption),
    ("corrupted double-linked list", CauseKind::HeapCorruption),
    ("free(): ", CauseKind::HeapCorruption),
    ("malloc(): ", CauseKind::HeapCorruption),
    ("realloc(): ", CauseKind::HeapCorruption),
    ("calloc(): ", CauseKind::HeapCorruption),
    ("malloc_consolidate(): ", CauseKind::HeapCorruption),
    ("munmap_chunk(): ", CauseKind::HeapCorruption),
    ("heap-use-after-free", CauseKind::HeapCorruption),
    ("heap-buffer-overflow", CauseKind::HeapCorruption),
    ("attempting double-free", CauseKind::HeapCorruption),
    ("pure virtual method called", CauseKind::PureVirtualCall),
    ("pure virtual function called", CauseKind::PureVirtualCall),
    ("Assertion", CauseKind::Assertion),
    ("assertion", CauseKind::Assertion),
    ("Check failed: ", CauseKind::Assertion),
    ("terminate called", CauseKind::UncaughtException),
    ("uncaught exception", CauseKind::UncaughtException),
    ("terminating due to", CauseKind::UncaughtException),
];

/// Returns the kind of crash that a message reports.
pub fn kind(message: &str) -> Option<CauseKind> {
    // A panic's text is the program's own, and may have any phrase.
    if panic_text(message).is_some() {
        return Some(CauseKind::Panic);
    }
    let found = PHRASES.iter().find(|(phrase, _)| message.contains(phrase));
    found.map(|(_, kind)| *kind)
}

/// Returns the text of a Rust or Go panic: its first line, without the place.
pub fn panic_text(message: &str) -> Option<&str> {
    if let Some((_, rest)) = message.split_once("panicked at ") {
        // Before Rust 1.73 the text was quoted, and the place was after the text.
        if let Some(quoted) = rest.strip_prefix('\'') {
            let line = quoted.lines().next()?;
            return Some(line.rsplit_once("', ").map_or(line, |(text, _)| text));
        }
        return rest.lines().nth(1).map(str::trim).or(Some(""));
    }
    let start = message
        .starts_with("panic: ")
        .then_some(0)
        .or_else(|| message.find("\npanic: ").map(|at| at + 1))?;
    message[start..].lines().next()?.strip_prefix("panic: ")
}

/// Returns the text with `<n>` for numbers and addresses, and `<s>` for quoted parts.
pub fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(letter) = rest.chars().next() {
        let is_at_word = !before.is_alphanumeric() && before != '_';
        let (length, mask) = match letter {
            '\'' | '"' | '`' if is_at_word => (quoted_length(rest, letter), "<s>"),
            _ if is_at_word => (number_length(rest), "<n>"),
            _ => (0, ""),
        };
        if length == 0 {
            out.push(letter);
            before = letter;
            rest = &rest[letter.len_utf8()..];
        } else {
            out.push_str(mask);
            before = '>';
            rest = &rest[length..];
        }
    }
    out
}

/// Returns the length of a quoted part at the start of a text, or zero. The closing quote of
/// `` `name' `` differs from the opening one.
fn quoted_length(text: &str, quote: char) -> usize {
    let is_end = |letter: char| letter == quote || (quote == '`' && letter == '\'');
    text[1..].find(is_end).map_or(0, |at| at + 2)
}

/// Returns the length of a number or identifier at the start of a text, or zero. An identifier has
/// eight or more hexadecimal digits, and may have hyphens.
fn number_length(text: &str) -> usize {
    let length_of = |is_inner: fn(char) -> bool| text.find(|letter| !is_inner(letter)).unwrap_or(text.len());
    let is_hex = |word: &str| {
        let word = word.strip_prefix("0x").unwrap_or(word);
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let joined = length_of(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let digits = text[..joined].replace('-', "");
    if digits.len() >= 8 && is_hex(&digits) && digits.bytes().any(|byte| byte.is_ascii_digit()) {
        return joined;
    }
    let length = length_of(|letter| letter.is_ascii_alphanumeric());
    let word = &text[..length];
    let is_number = word.starts_with(|letter: char| letter.is_ascii_digit());
    if is_number && (is_hex(word) || has_unit(word)) {
        return length;
    }
    0
}

/// Returns whether a word is a decimal number with a unit, such as `12ms`.
fn has_unit(word: &str) -> bool {
    let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
    unit.len() <= 3 && unit.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns the lines of a message without characters that cannot be printed.
pub fn printable_lines(message: &str) -> String {
    // The rest is discarded later: a bound here keeps the time bounded.
    let message = &message[..message.floor_char_boundary(4 * super::MAX_MESSAGE)];
    message
        .chars()
        .map(|letter| match letter {
            '\n' => '\n',
            _ if is_printable(letter) => letter,
            _ => '?',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_addresses_and_quotes_are_masked() {
        for (text, expected) in [
            ("index 7 of 3", "index <n> of <n>"),
            ("bad pointer 0x7ffe12aa, took 12ms", "bad pointer <n>, took <n>"),
            (
                "order 550e8400-e29b-41d4-a716-446655440000 lost",
                "order <n> lost",
            ),
            ("cannot open 'a b' or \"c\"", "cannot open <s> or <s>"),
            ("can't find x86 or utf8", "can't find x86 or utf8"),
            ("unclosed 'quote", "unclosed 'quote"),
            ("deadbeef1 facade decade", "<n> facade decade"),
            ("`Option::unwrap()` on a `None` value", "<s> on a <s> value"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn panic_text_has_no_place() {
        assert_eq!(
            panic_text("thread 'main' (4711) panicked at src/a.rs:1:2:\nboom 1\nnote: run with"),
            Some("boom 1")
        );
        assert_eq!(panic_text("panicked at 'boom', a.rs:3:4"), Some("boom"));
        assert_eq!(panic_text("log\npanic: boom\n"), Some("boom"));
        assert_eq!(panic_text("do not panic: fine"), None);
    }

    #[test]
    fn words_of_a_panic_do_not_change_its_kind() {
        assert_eq!(
            kind("thread 'a' panicked at a.rs:1:2:\nout of memory in the assertion pool"),
            Some(CauseKind::Panic)
        );
    }
}
