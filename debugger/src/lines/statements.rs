//! The executed instructions of a history that belong to statements.

use crate::code::Statement;
use crate::skip::StepFilter;
use backtrail_decoder::PcSet;
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

/// The executed instructions of a history that belong to a statement; found on first use.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    pub(super) all: OnceCell<Arc<PcSet>>,
    /// Those that no symbol covers.
    pub(super) nameless: OnceCell<PcSet>,
    /// Those at which moves with a filter can stop, of the last search.
    pub(super) filtered: RefCell<Option<(StepFilter, Arc<PcSet>)>>,
    /// The executed instructions that do not belong to a statement, of the last search.
    pub(super) others: RefCell<Option<(Statement, PcSet)>>,
}
