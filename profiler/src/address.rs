//! Frames of stacks while recording. They stay valid for the whole recording, unlike the ids of a
//! segment.

use crate::modules::ModuleIdx;
use backtrail_pt::FileOffset;

/// The index of a function with a line in [`PythonCode`](crate::python::PythonCode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrameIdx(pub(crate) u32);

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeFrame {
    /// Code of a module.
    Module(ModuleIdx, FileOffset),
    /// Code that belongs to no file.
    Address(u64),
    /// A function of Python.
    Python(PythonFrameIdx),
    /// The rest of the stack is not known.
    Lost,
}

/// A branch that was taken before a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeBranch {
    /// The branch instruction.
    pub from: CodeFrame,
    /// The target.
    pub to: CodeFrame,
    /// Whether the target was mispredicted, if the processor reports it.
    pub is_mispredicted: Option<bool>,
}

impl CodeFrame {
    /// Returns the address of code of a program that belongs to no file.
    pub fn user_address(self) -> Option<u64> {
        match self {
            Self::Address(address) if address.cast_signed() >= 0 => Some(address),
            _ => None,
        }
    }
}
