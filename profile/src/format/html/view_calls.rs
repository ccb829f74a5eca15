//! The calls of a page: examples that the debugger can open.

use crate::calls::{CallExample, CallSummaries, CallSummary};
use serde::Serialize;

/// The calls of a profile, and the command that opens one.
#[derive(Clone, Copy, Debug)]
pub struct ViewCalls<'a> {
    /// The command of a shell, which ends where the position belongs.
    pub command: &'a str,
    /// The examples.
    pub summaries: &'a CallSummaries,
}

/// The calls of a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CallData {
    command: String,
    unit: String,
    pub functions: CallColumns,
    pub stacks: CallColumns,
}

/// Calls of functions or of stacks. Those without calls have no row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct CallColumns {
    /// The number of the function or of the stack.
    index: Vec<usize>,
    measured: Vec<u64>,
    #[serde(rename = "leftOut")]
    left_out: Vec<u64>,
    slowest: Vec<Option<ExampleRow>>,
    typical: Vec<Option<ExampleRow>>,
}

/// The position, the bounds of the length, and the instructions.
type ExampleRow = (String, u64, u64, u64);

impl CallData {
    pub fn new(calls: ViewCalls<'_>) -> Self {
        Self {
            command: calls.command.to_owned(),
            unit: calls.summaries.unit.clone(),
            functions: CallColumns::default(),
            stacks: CallColumns::default(),
        }
    }
}

impl CallColumns {
    pub fn push(&mut self, index: usize, calls: &CallSummary) {
        let row = |call: &CallExample| (call.position.clone(), call.least, call.most, call.instructions);
        self.index.push(index);
        self.measured.push(calls.measured);
        self.left_out.push(calls.left_out);
        self.slowest.push(calls.slowest.as_ref().map(row));
        self.typical.push(calls.typical.as_ref().map(row));
    }
}
