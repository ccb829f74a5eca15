//! Functions as they are typed: a name, or `/REGEX/`.

use crate::error::{Error, Result};
use crate::session::Process;
use backtrail_pt::Avma;
use backtrail_symbolizer::Function;
use regex::Regex;
use std::collections::BTreeSet;

/// The entries of the functions that a text means in a process.
///
/// # Errors
/// When there is none, or none that is ever called: all of it is inlined.
pub fn entries(process: &Process, text: &str) -> Result<BTreeSet<Avma>> {
    let found: BTreeSet<Avma> = named(process, text)?
        .into_iter()
        .map(|function| function.entry)
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    if !process.symbols.inlined_copies_named(text).is_empty() {
        return Err(Error::Cannot(format!(
            "{text} is always inlined, so it is never called; `count {text}` counts its executions"
        )));
    }
    Err(Error::NoSymbol {
        name: text.to_owned(),
        modules: process.describe_modules(),
    })
}

fn named(process: &Process, text: &str) -> Result<Vec<Function<Avma>>> {
    match between_slashes(text) {
        Some(pattern) => Ok(process.symbols.functions_matching(&regex(pattern)?)),
        None => Ok(process.symbols.functions_named(text)),
    }
}

/// `PATTERN` of `/PATTERN/`.
fn between_slashes(text: &str) -> Option<&str> {
    text.strip_prefix('/')?
        .strip_suffix('/')
        .filter(|pattern| !pattern.is_empty())
}

/// Reads a regular expression that was typed.
///
/// # Errors
/// When it is none.
pub fn regex(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| Error::BadRegex {
        pattern: pattern.to_owned(),
        problem: error
            .to_string()
            .lines()
            .last()
            .unwrap_or("")
            .trim_start_matches("error: ")
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_make_a_regular_expression() {
        assert_eq!(between_slashes("/^a|b$/"), Some("^a|b$"));
        for name in ["a", "/", "//", "/a", "operator/(X)"] {
            assert_eq!(between_slashes(name), None, "{name}");
        }
        assert!(regex("a(").unwrap_err().to_string().contains("a("));
    }
}
