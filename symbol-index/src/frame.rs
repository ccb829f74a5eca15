//! Positions in a build, and the frames that an index returns for them.

use backtrail_pt::{FileOffset, Svma};
use backtrail_symbolizer::Signature;
use backtrail_symbolizer::types::Language;
use std::sync::Arc;

/// A position in the code of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// A byte of the executable or library.
    Offset(FileOffset),
    /// A stated address.
    Address(Svma),
}

/// The frames at a position: the innermost inlined call first, and the function last. Positions of
/// the same line and inlined calls share them. They are empty if no function is known.
pub type Frames = Arc<[Frame]>;

/// A frame: an inlined call, or the function itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function of the frame.
    pub function: Arc<FunctionInfo>,
    /// The path of the source file, if known.
    pub file: Option<Arc<str>>,
    /// The line of the position, or of the call that leads to the next inner frame. It is 0 for
    /// compiler-generated code, and without a file.
    pub line: u32,
    /// Whether this is an inlined call. Its caller is the next frame.
    pub inlined: bool,
}

/// A function, or an inlined copy of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionInfo {
    /// The demangled name.
    pub name: Arc<str>,
    /// The linkage name. Without one in the debug information, it is the qualified name.
    pub linkage_name: Arc<str>,
    /// The types in the declaration, if known.
    pub signature: Option<Arc<Signature>>,
    /// The source language, if known.
    pub language: Option<Language>,
}
