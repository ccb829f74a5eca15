//! Frames of stacks: code of a module, a bare address, or a function that only has a name.

use crate::table::table_id;
use backtrail_pt::{BuildId, FileOffset};

table_id! {
    /// A module of a profile.
    ModuleId
}
table_id! {
    /// A function of a profile.
    FunctionId
}
table_id! {
    /// A frame of a profile.
    FrameId
}
table_id! {
    /// A text of a profile.
    StringId
}

/// The name of [`Frame::Lost`] in views and in formats that only have names.
pub(crate) const LOST: &str = "[the stack could not be read further]";

/// A file with code. Its build id and a file offset are the only key of a symbol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// The build id. `None`: the file has none, or it is not known.
    pub build_id: Option<BuildId>,
    /// The path on the host, or a name in brackets as of the kernel and the vDSO.
    pub path: StringId,
}

/// The code that a frame ran. Frames are compared by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Frame {
    /// Code of a module. For a caller, the offset is inside its call instruction.
    Code {
        /// The module.
        module: ModuleId,
        /// The offset in its file.
        offset: FileOffset,
    },
    /// Code at an address that no module is known for.
    Address(u64),
    /// A function that is only known by name, as of an interpreter or of folded stacks.
    Function {
        /// The function.
        function: FunctionId,
        /// The line that ran in it. 0: unknown.
        line: u32,
    },
    /// The stack goes on, but the unwinder could not. This is the outermost frame.
    Lost,
}

/// A function with the place of its definition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// The name as people read it.
    pub name: StringId,
    /// The name that the linker knows. Equal to `name` if there is no other.
    pub linkage_name: StringId,
    /// The source file. `None`: unknown.
    pub file: Option<StringId>,
    /// The first line. 0: unknown.
    pub start_line: u32,
}

/// A line of a symbolized frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// The line in its file. 0: unknown.
    pub line: u32,
}
