//! The branches before a sample, as processors with last branch records (LBR) keep them.

use crate::frame::FrameId;
use crate::stacks::StackId;

/// The branches before a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchStack {
    /// The stack of the sample.
    pub stack: StackId,
    /// The branches, the newest first.
    pub branches: Box<[TakenBranch]>,
}

/// A branch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBranch {
    /// The branch instruction.
    pub from: FrameId,
    /// The target.
    pub to: FrameId,
    /// Whether the target was mispredicted. `None`: the processor does not report it.
    pub is_mispredicted: Option<bool>,
}
