//! Frames of stacks while recording. They stay valid for the whole recording, unlike the ids of a
//! segment.

use crate::modules::ModuleIdx;
use backtrail_pt::FileOffset;

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeFrame {
    /// Code of a module.
    Module(ModuleIdx, FileOffset),
    /// Code that belongs to no file.
    Address(u64),
    /// The rest of the stack is not known.
    Lost,
}
