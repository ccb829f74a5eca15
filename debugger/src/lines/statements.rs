//! The executed instructions of a history that belong to statements.

use crate::code::Statement;
use backtrail_decoder::PcSet;
use std::cell::{OnceCell, RefCell};

/// The executed instructions of a history that belong to a statement; found on first use.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    pub(super) all: OnceCell<PcSet>,
    /// Those that no symbol covers.
    pub(super) nameless: OnceCell<PcSet>,
    /// The executed instructions that do not belong to a statement, of the last search.
    pub(super) others: RefCell<Option<(Statement, PcSet)>>,
}
