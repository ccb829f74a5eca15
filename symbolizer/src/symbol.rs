//! A symbol of the ELF symbol tables.

use crate::FunctionKind;
use std::ops::Range;

/// A named address range in code.
pub(crate) struct Symbol<'d> {
    /// The addresses that it covers. Never empty.
    pub range: Range<u64>,
    /// The name in the string table.
    pub linkage: &'d [u8],
    pub kind: FunctionKind,
    /// Whether the symbol is visible outside of its object file.
    pub global: bool,
    /// The position in the tables.
    pub number: u32,
    /// Whether the table states no size. `range` then ends where the next symbol starts.
    pub unsized_: bool,
}
