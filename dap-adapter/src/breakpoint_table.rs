//! Records which breakpoints the client set, and on what.

use std::collections::BTreeMap;

/// The target of a breakpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakpointKind {
    /// A line of this file, as [`Sources::key_of`](crate::sources::Sources::key_of) names it.
    Source(String),
    /// A function.
    Function,
    /// An instruction.
    Instruction,
    /// The memory of a variable or expression.
    Data,
}

/// The breakpoints that the client set, by number. All others were set in the console.
#[derive(Debug, Default)]
pub struct BreakpointTable(BTreeMap<u32, BreakpointKind>);

impl BreakpointTable {
    /// Returns the target of a breakpoint; `None` if it was set in the console.
    #[must_use]
    pub fn kind(&self, number: u32) -> Option<&BreakpointKind> {
        self.0.get(&number)
    }

    /// Returns the numbers of the breakpoints on a target.
    #[must_use]
    pub fn numbers_of(&self, kind: &BreakpointKind) -> Vec<u32> {
        let known = self.0.iter().filter(|(_, known)| *known == kind);
        known.map(|(number, _)| *number).collect()
    }

    /// Adds a breakpoint.
    pub fn insert(&mut self, number: u32, kind: BreakpointKind) {
        self.0.insert(number, kind);
    }

    /// Removes a breakpoint, if it is in the table.
    pub fn remove(&mut self, number: u32) {
        self.0.remove(&number);
    }
}
