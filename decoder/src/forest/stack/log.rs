//! The log of a stack's changes, from which the index of a forest is built.

use super::{Frame, NONE};
use crate::forest::code_sites::SiteIdx;
use crate::forest::effects::Op;
use backtrail_pt::Avma;

/// The calls under a root, with its synthetic roots.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct CallTree {
    /// The index of the first instruction.
    pub first: u64,
    /// The recorded root and its position.
    pub root: u32,
    pub position: i32,
    /// The first synthetic root of the tree, see [`StackLog::synthetic`]. They extend to those of
    /// the next tree, the innermost first.
    pub synthetic: u32,
}

/// A root that was added around the open calls.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct SyntheticRoot {
    pub function: SiteIdx,
    /// The execution in which it was found.
    pub execution: u64,
}

/// The log of changes, as far as it is kept.
#[derive(Debug, Default)]
pub(in crate::forest) struct StackLog {
    /// The execution that the rules handle, its first instruction, the number of calls recorded
    /// before it, and its operations.
    pub(super) execution: u64,
    pub(super) index: u64,
    pub(super) before: u32,
    pub ops: Vec<Op>,
    pub trees: Vec<CallTree>,
    /// The synthetic roots of all trees, in the order in which they were found.
    pub synthetic: Vec<SyntheticRoot>,
    /// The later functions of recorded calls.
    pub renamed: Vec<(u32, SiteIdx)>,
    /// The interrupted addresses of signal handlers, by recorded call.
    pub interrupted: Vec<(u32, Avma)>,
}

impl StackLog {
    /// Changes the function of a call.
    pub fn rename(&mut self, call: u32, to: SiteIdx) {
        match call {
            // Only the last function is kept for a call of this execution.
            NONE => self.renamed.push((call, to)),
            synthetic @ Frame::SYNTHETIC.. => {
                if let Some(root) = self.synthetic.get_mut((synthetic & !Frame::SYNTHETIC) as usize) {
                    root.function = to;
                }
            }
            call if call >= self.before => {
                let mut begins = self.ops.iter_mut().filter_map(|op| match op {
                    Op::Begin { function, .. } => Some(function),
                    _ => None,
                });
                if let Some(function) = begins.nth((call - self.before) as usize) {
                    *function = to;
                }
            }
            call => self.renamed.push((call, to)),
        }
    }
}
