//! The results of unwinding a thread's stack in the core.

use crate::unwind::Unwound;
use backtrail_decoder::CallId;
use std::cell::OnceCell;

/// The stack of a thread in the core, unwound when first requested.
#[derive(Default)]
pub(crate) struct CoreStackCache {
    pub(super) unwound: OnceCell<Option<Unwound>>,
    pub(super) join: OnceCell<StackJoin>,
    /// From this instruction on it is certain which call is meant where a function calls itself.
    pub(super) settled: OnceCell<u64>,
}

/// The relation of the two stacks of a thread at the end of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackJoin {
    /// Frame by frame the same, as far as history goes.
    Joint {
        /// The outermost call of the forest's stack.
        root: CallId,
        /// Whether functions that the root reached by tail calls certainly have the same caller,
        /// also in the past.
        same_stack: bool,
        /// The number of the physical frame that called it.
        caller: usize,
    },
    /// They contradict each other: the call forest took something for what it was not.
    Differ,
    /// The relation is uncertain.
    Unknown,
}
