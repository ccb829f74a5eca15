//! The executed instructions of a history that belong to statements.

use backtrail_decoder::PcSet;
use std::cell::OnceCell;

/// The executed instructions of a history that belong to a statement; found on first use.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    pub(super) all: OnceCell<PcSet>,
    /// Those that no symbol covers.
    pub(super) nameless: OnceCell<PcSet>,
}
