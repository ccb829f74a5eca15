//! The location of a function for a trigger.

use backtrail_pt::FileOffset;
use std::fmt;

/// The start of a function in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionLocation {
    /// The name in the file's symbol tables, mangled as there.
    Symbol(String),
    /// The file offset of the first instruction.
    Offset(FileOffset),
}

impl fmt::Display for FunctionLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol(name) => write!(f, "the function {name}"),
            Self::Offset(offset) => write!(f, "the offset {:#x}", offset.0),
        }
    }
}
