//! Functions as they are typed: a name, or `/REGEX/`.

use crate::error::{Error, Result};
use crate::lines::CopyCode;
use crate::session::Process;
use backtrail_decoder::PcSet;
use backtrail_pt::Avma;
use backtrail_symbolizer::{Declaration, Function, InlinedCopy, Symbolizer};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The entries of functions, each with the number of the period in which its module was mapped
/// ([`Process::epochs`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionEntries(BTreeSet<(Avma, usize)>);

impl FunctionEntries {
    /// Returns whether a function with this entry was meant in a period.
    #[must_use]
    pub fn contains(&self, entry: Avma, epoch: usize) -> bool {
        self.0.contains(&(entry, epoch))
    }

    /// The entries, ascending.
    pub fn addresses(&self) -> impl Iterator<Item = Avma> {
        self.0.iter().map(|(entry, _)| *entry)
    }
}

/// An inlined copy of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedFunction {
    /// The function.
    pub name: Arc<str>,
    /// The copy.
    pub copy: CopyCode,
    /// The number of the period in which its module was mapped.
    pub epoch: usize,
    /// The function's declaration in source code.
    pub declared: Option<Declaration>,
}

impl InlinedFunction {
    /// Returns a copy that the debug information of a period describes.
    #[must_use]
    pub fn new(copy: InlinedCopy<Avma>, epoch: usize) -> Self {
        Self {
            name: copy.name,
            copy: CopyCode {
                code: PcSet::from_ranges(copy.ranges),
                begin: copy.begin,
            },
            epoch,
            declared: copy.declared,
        }
    }
}

/// The code of functions: that which is called, and that which is inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCode {
    /// The functions that are called.
    pub entries: FunctionEntries,
    /// The inlined copies.
    pub copies: Vec<InlinedFunction>,
}

/// Returns the code of the functions that a text means in a process. A regular expression means
/// the functions that are called.
///
/// # Errors
///
/// If there is none.
pub fn code(process: &Process, text: &str) -> Result<FunctionCode> {
    let mut code = FunctionCode::default();
    for (number, epoch) in process.epochs().iter().enumerate() {
        let named = named(&epoch.symbols, text)?.into_iter();
        code.entries
            .0
            .extend(named.map(|function| (function.entry, number)));
        let copies = match between_slashes(text) {
            // These could be most of the program's code.
            Some(_) => Vec::new(),
            None => epoch.symbols.inlined_copies_named(text),
        };
        let copies = copies.into_iter();
        code.copies
            .extend(copies.map(|copy| InlinedFunction::new(copy, number)));
    }
    match code.entries.0.is_empty() && code.copies.is_empty() {
        true => Err(Error::NoSymbol {
            name: text.to_owned(),
            modules: process.describe_modules(),
        }),
        false => Ok(code),
    }
}

fn named(symbols: &Symbolizer, text: &str) -> Result<Vec<Function<Avma>>> {
    match between_slashes(text) {
        Some(pattern) => Ok(symbols.functions_matching(&regex(pattern)?)),
        None => Ok(symbols.functions_named(text)),
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
