//! Functions at offsets of modules, which the request brings.

use crate::request::Symbol;
use crate::{Error, Result};
use std::collections::HashMap;

/// The names of functions, the innermost first.
type Functions = Box<[Box<str>]>;

/// The functions by build id and offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    functions: HashMap<Box<[u8]>, HashMap<u64, Functions>>,
}

impl Symbols {
    /// Builds the table.
    pub(crate) fn new(symbols: &[Symbol]) -> Result<Self> {
        let mut table = Self::default();
        for symbol in symbols {
            let id = bytes(&symbol.build_id)
                .ok_or_else(|| Error::Request(format!("{:?} is not a build id", symbol.build_id)))?;
            let names = symbol.functions.iter().map(|name| name.as_str().into());
            let module = table.functions.entry(id).or_default();
            module.insert(symbol.offset, names.collect());
        }
        Ok(table)
    }

    /// Returns the functions at an offset, the innermost first. Empty: unknown.
    pub(crate) fn functions(&self, build_id: &[u8], offset: u64) -> &[Box<str>] {
        let found = self
            .functions
            .get(build_id)
            .and_then(|module| module.get(&offset));
        found.map_or(&[], |names| names)
    }
}

/// Returns the bytes of hexadecimal digits.
fn bytes(text: &str) -> Option<Box<[u8]>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_build_id_and_offset() {
        let symbol = Symbol {
            build_id: "00ff".into(),
            offset: 16,
            functions: vec!["inner".into(), "outer".into()],
        };
        let symbols = Symbols::new(std::slice::from_ref(&symbol)).unwrap();
        assert_eq!(symbols.functions(&[0, 255], 16).len(), 2);
        assert!(symbols.functions(&[0, 255], 17).is_empty());
        for wrong in ["", "0", "0g", "éé"] {
            let symbol = Symbol {
                build_id: wrong.into(),
                ..symbol.clone()
            };
            assert!(Symbols::new(&[symbol]).is_err(), "{wrong}");
        }
    }
}
