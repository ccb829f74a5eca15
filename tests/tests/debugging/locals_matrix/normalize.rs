//! A common form of values in GDB and Backtrail.

use super::builds::Source;
use regex::Regex;
use std::sync::LazyLock;

/// Replacements in the values of every language.
static WORDING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    compiled(&[
        // Memory that a core does not have, with the reference to it.
        (
            r"<error: Cannot access memory at address (0x[0-9a-f]+)>",
            "<no memory at $1>",
        ),
        (
            r"<error reading variable:? ?(?:\S+ \()?Cannot access memory at address (0x[0-9a-f]+)\)?>",
            "<no memory at $1>",
        ),
        (
            r"<unknown: the core does not have the memory at (0x[0-9a-f]+)>",
            "<no memory at $1>",
        ),
        // Second names in the debug files of libraries, which GDB is run without.
        (r"<__GI_(\w+)", "<$1"),
        // Bytes at the end of a text that are no character.
        (r#"", <incomplete sequence ((?:\\[0-7]{3})+)>"#, r#"$1""#),
        (r"@0x[0-9a-f]+: <no memory at (0x[0-9a-f]+)>", "<no memory at $1>"),
    ])
});
/// Replacements in the values of Rust.
static RUST_WORDING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    compiled(&[
        (r" ([{(])", "$1"),
        (r"\(size=0\)(?: =\{\})?", "(size=0) ={}"),
        // Tags without a variant.
        (
            r"<unknown: its discriminant matches no variant of the type>",
            "<no variant>",
        ),
        (
            r"<error reading variable: Could not find active enum variant>",
            "<no variant>",
        ),
    ])
});
/// Replacements in the values of Go.
static GO_WORDING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    compiled(&[
        // The types of functions.
        (r"\{[^{}=]*\} (0x[0-9a-f]+)", "{function} $1"),
        // GDB ends a slice at the first element in missing memory.
        (
            r"(<no memory at 0x[0-9a-f]+>)(?:, <no memory at 0x[0-9a-f]+>)*(?:\.\.\.)?\}?",
            "$1",
        ),
    ])
});
/// The beginning of a slice with its length.
static SLICE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"&(?:mut ?)?\[[^={}]*\]\(size=\d+\) ?= ?\{").unwrap());
/// The parts of a reference counter.
static COUNTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\{value = (.*), strong = \d+, weak = \d+\}$").unwrap());

fn compiled(pairs: &[(&str, &'static str)]) -> Vec<(Regex, &'static str)> {
    pairs
        .iter()
        .map(|(pattern, by)| (Regex::new(pattern).unwrap(), *by))
        .collect()
}

/// Returns a value in a form that both debuggers have in common.
pub fn normalized(text: &str, source: Source) -> String {
    let mut text = replaced(text.trim_end(), &WORDING);
    if source == Source::Go {
        text = replaced(&text, &GO_WORDING);
    }
    if source == Source::Rust {
        text = without_lengths(replaced(&text, &RUST_WORDING));
        if let Some((counts, parts)) = text.split_once(" =")
            && let Some(found) = COUNTED.captures(parts.trim_start())
        {
            text = format!("{counts} ={{{}}}", &found[1]);
        }
    }
    text
}

fn replaced(text: &str, by: &[(Regex, &str)]) -> String {
    by.iter().fold(text.to_owned(), |text, (pattern, by)| {
        pattern.replace_all(&text, *by).into_owned()
    })
}

/// Returns the text with slices as Rust's source writes them: `&[1, 2]`.
fn without_lengths(mut text: String) -> String {
    while let Some(found) = SLICE.find(&text) {
        let mut depth = 1;
        let end = text[found.end()..].char_indices().find_map(|(at, character)| {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(found.end() + at)
        });
        let Some(end) = end else { break };
        let elements = &text[found.end()..end];
        text = format!("{}&[{elements}]{}", &text[..found.start()], &text[end + 1..]);
    }
    text
}

#[test]
fn slices_in_missing_memory_are_equal() {
    let gdb = "[]S = {<error reading variable s (Cannot access memory at address 0x20)>";
    let unknown = |at| format!("<unknown: the core does not have the memory at {at}>");
    let ours = format!("[]S = {{{}, {}...}}", unknown("0x20"), unknown("0x30"));
    assert_eq!(normalized(&ours, Source::Go), normalized(gdb, Source::Go));
    let other = format!("[]S = {{{}}}", unknown("0x28"));
    assert_ne!(normalized(&other, Source::Go), normalized(gdb, Source::Go));
}
