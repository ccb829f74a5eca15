//! Examples of calls, in profiles of recordings that have every call.

use crate::function_profile::SymbolId;
use crate::stacks::StackId;
use std::collections::BTreeMap;

/// A call that a debugger can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallExample {
    /// The position of its first instruction, as the debugger writes it.
    pub position: String,
    /// The lower bound of its length.
    pub least: u64,
    /// The upper bound of its length.
    pub most: u64,
    /// The number of instructions, including those of callees.
    pub instructions: u64,
}

/// The calls of a function or of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSummary {
    /// The number of calls with a known length.
    pub measured: u64,
    /// The number of calls whose beginning or end is not in the recording.
    pub left_out: u64,
    /// The longest call, by the middle of the bounds. Of equal bounds, more instructions are
    /// longer. `None`: no length is known.
    pub slowest: Option<CallExample>,
    /// The call with the median length in the same order: half of the calls are not longer.
    pub typical: Option<CallExample>,
}

/// Examples for all functions and stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSummaries {
    /// The unit of lengths.
    pub unit: String,
    /// The calls of each function.
    pub by_function: BTreeMap<SymbolId, CallSummary>,
    /// The calls at each stack: those of its innermost function with these callers.
    pub by_stack: BTreeMap<StackId, CallSummary>,
}
