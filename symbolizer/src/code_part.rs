//! The code of a file in parts, with everything that an index of symbols stores about them.

use crate::types::Language;
use backtrail_pt::Svma;
use std::ops::Range;
use std::sync::Arc;

/// The code of one compilation unit, or the code without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeGroup {
    /// The tables that describe the code.
    pub(crate) source: GroupSource,
    /// Disjoint addresses, in order.
    pub(crate) pieces: Vec<Range<u64>>,
}

/// The tables that describe the code of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupSource {
    /// The compilation unit with this number.
    Unit(u32),
    /// Go's own table.
    GoTable,
    /// The symbol tables alone.
    SymbolTables,
}

/// The parts of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeParts {
    /// The paths of the source files, by number. Unused ones may be empty.
    pub files: Vec<Arc<str>>,
    /// The source language, if DWARF or Go's own table describes the group.
    pub language: Option<Language>,
    /// The parts, in address order.
    pub parts: Vec<CodePart>,
}

/// The number of a source file in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileNumber(pub u32);

/// A contiguous part of a physical function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePart {
    /// The addresses.
    pub range: Range<Svma>,
    /// The demangled name of the function.
    pub function: Arc<str>,
    /// The linkage name of the function.
    pub linkage_name: Arc<str>,
    /// The types in the function's declaration, if DWARF states them.
    pub signature: Option<Arc<Signature>>,
    /// The rows of the line table: the first one begins at the start of the part. It is empty
    /// without a line table.
    pub rows: Vec<PartRow>,
    /// The inlined copies in the part. A copy follows the one around it.
    pub inlined: Vec<InlinedPart>,
}

/// A row of the line table: it lasts until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRow {
    /// The first address.
    pub address: Svma,
    /// The source file. `None`: the addresses have no line.
    pub file: Option<FileNumber>,
    /// The line, from 1. It is 0 for compiler-generated code.
    pub line: u32,
}

impl PartRow {
    /// Builds the row of addresses that no line table covers.
    pub(crate) fn without_line(address: u64) -> Self {
        Self {
            address: Svma(address),
            file: None,
            line: 0,
        }
    }
}

/// The code of an inlined copy in a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedPart {
    /// The index of the copy around this one. `None`: this one is inlined into the function.
    pub around: Option<usize>,
    /// Disjoint addresses, in order. Those of the copy around this one contain them.
    pub ranges: Vec<Range<Svma>>,
    /// The demangled name of the inlined function.
    pub function: Arc<str>,
    /// The linkage name of the inlined function.
    pub linkage_name: Arc<str>,
    /// The types in the inlined function's declaration, if DWARF states them.
    pub signature: Option<Arc<Signature>>,
    /// The source file of the inlined call.
    pub call_file: Option<FileNumber>,
    /// The line of the inlined call.
    pub call_line: u32,
}

/// The types in a function's declaration, as the source writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    /// The type of the object, if it is a member function: the class of C++'s `this`, or the type
    /// of Rust's `self`.
    pub this: Option<Arc<str>>,
    /// The types of the parameters, without `this` of C++.
    pub parameters: Vec<Arc<str>>,
    /// The return type. `None` if there is none, as of `void`.
    pub result: Option<Arc<str>>,
}

/// A segment of the file that is loaded (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The position in the file.
    pub offset: u64,
    /// The number of bytes in the file.
    pub size: u64,
    /// The stated address.
    pub address: u64,
}
