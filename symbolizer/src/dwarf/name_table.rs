//! The data of the index of named functions.

use crate::names::NameIndex;

/// An index of all named entries with code.
pub(super) struct NameTable {
    pub(super) entries: Vec<NamedCode>,
    pub(super) index: NameIndex,
}

/// A function or inlined copy.
#[derive(Clone, Copy)]
pub(super) struct NamedCode {
    pub(super) unit: u32,
    pub(super) number: u32,
    pub(super) inlined: bool,
}
