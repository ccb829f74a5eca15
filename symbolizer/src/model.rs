//! Results of queries: functions, frames, line rows, and positions of functions and lines.
//!
//! Each is generic over its address space `A`: [`Svma`] for a [`crate::SymbolFile`], [`Avma`] for a
//! [`crate::Symbolizer`]. Strings are shared, so clones are cheap.

use backtrail_pt::{Avma, Svma};
use std::ops::Range;
use std::sync::Arc;

/// A file and a line of source code, as the compiler wrote them.
pub type Declaration = (Arc<str>, u32);

/// How much a file says about its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolDetail {
    /// No function has a name.
    None,
    /// Functions have names, and no lines.
    SymbolTable,
    /// DWARF has lines. Inlined calls and variables of some units are in `.dwo` files that were not
    /// found.
    SplitDebugInformation,
    /// DWARF has lines, inlined calls and variables.
    DebugInformation,
}

/// The origin of a function name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FunctionKind {
    /// Code of a function, from DWARF or a symbol of type `STT_FUNC`.
    Function,
    /// A linkage stub (`puts@plt`), named by the relocation of the slot that it jumps through.
    Plt,
    /// A resolver (`STT_GNU_IFUNC`): returns the address of the implementation to use.
    IfuncResolver,
    /// A symbol without a type in a code section: hand-written assembly.
    Label,
}

/// A symbol of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
    /// The name, not demangled and without a version.
    pub linkage_name: Arc<str>,
    /// The address.
    pub address: Svma,
    /// Whether it is visible in its object file only.
    pub is_local: bool,
}

/// A physical function: it has its own code, and is not an inlined copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function<A = Svma> {
    /// The demangled name, with C++ parameters and without Rust hashes. PLT stubs are named
    /// `foo@plt`.
    pub name: Arc<str>,
    /// The linkage name. It equals `name` if that is not mangled.
    pub linkage_name: Arc<str>,
    /// The entry address, which identifies the function in its module.
    pub entry: A,
    /// One contiguous part: the one that contains the requested address, or else the one at
    /// `entry`. A function split into hot and cold code has several
    /// ([`crate::SymbolFile::parts_of`]).
    pub range: Range<A>,
    /// The declaration in source code, if DWARF states it.
    pub declared: Option<Declaration>,
    /// The origin of the name.
    pub kind: FunctionKind,
}

/// One frame of a symbolic stack at an address: an inlined call, or the function itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame<A = Svma> {
    /// The demangled name.
    pub function: Arc<str>,
    /// The linkage name.
    pub linkage_name: Arc<str>,
    /// The source location in this frame. In the innermost frame, it is the line of the address. In
    /// other frames, it is the line of the inlined call that leads to the next inner frame.
    pub location: Option<SourceLocation>,
    /// The function's declaration in source code.
    pub declared: Option<Declaration>,
    /// The contiguous code of this frame that contains the address: of the inlined copy, or the
    /// function.
    pub range: Range<A>,
    /// The lowest address of the inlined copy, or the function's entry. It identifies the copy.
    pub entry: A,
    /// Whether this is an inlined copy. Its caller is the next frame in the list.
    pub inlined: bool,
}

/// One frame of a symbolic stack as compilers read it in sample profiles: a line relative to its
/// function, and a discriminator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleFrame {
    /// The linkage name as DWARF states it, or the source name of a C function.
    pub linkage_name: Arc<str>,
    /// The line of the address, or of the inlined call that leads to the next inner frame; 0 if
    /// there is none.
    pub line: u32,
    /// The line of the function's declaration; 0 if unknown.
    pub declared_line: u32,
    /// DWARF's discriminator, which separates blocks of one line (DWARF 5, section 6.2.2).
    pub discriminator: u32,
}

/// A position in source code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLocation {
    /// The path. A relative path is joined with the compilation directory.
    pub file: Arc<str>,
    /// The line, from 1. It is 0 for compiler-generated code without a line.
    pub line: u32,
    /// The column, from 1. It is 0 if unknown.
    pub column: u32,
}

/// A row of the line table, and the addresses that it covers (DWARF 5, section 6.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineRow<A = Svma> {
    /// The path. It is empty if the table names no file.
    pub file: Arc<str>,
    /// The line, from 1. It is 0 for compiler-generated code without a line.
    pub line: u32,
    /// The column, from 1. It is 0 if unknown.
    pub column: u32,
    /// Whether the start is a recommended breakpoint: the beginning of a statement.
    pub is_stmt: bool,
    /// Whether the function's prologue ends at the start.
    pub prologue_end: bool,
    /// The addresses from the row to the next address with a row. Never empty.
    pub range: Range<A>,
}

/// An address where the code of a source line begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineMatch<A = Svma> {
    /// The start of the line's first statement in this function or inlined copy.
    pub address: A,
    /// The path.
    pub file: Arc<str>,
    /// The line with code: the requested one, or the nearest after it.
    pub line: u32,
    /// The physical function that contains `address`. If `address` is its entry, GDB places a
    /// breakpoint at [`crate::SymbolFile::after_prologue`] instead.
    pub function: Option<Function<A>>,
}

/// An inlined copy of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InlinedCopy<A = Svma> {
    /// The demangled name of the inlined function.
    pub name: Arc<str>,
    /// The lowest address of the copy.
    pub entry: A,
    /// The address at which the copy begins to run: `DW_AT_entry_pc`, or else the start of the
    /// first part. The compiler may have moved instructions before it.
    pub begin: A,
    /// The code of the copy.
    pub ranges: Vec<Range<A>>,
    /// The function's declaration in source code.
    pub declared: Option<Declaration>,
}

/// Converts a result from a module's stated addresses to the actual addresses of a process.
pub(crate) trait ToAvma {
    /// The same result in [`Avma`].
    type Output;
    /// Adds `bias` (actual − stated) to every address.
    fn to_avma(self, bias: u64) -> Self::Output;
}

fn range_to_avma(range: Range<Svma>, bias: u64) -> Range<Avma> {
    range.start.to_avma(bias)..range.end.to_avma(bias)
}

impl ToAvma for Function {
    type Output = Function<Avma>;
    fn to_avma(self, bias: u64) -> Function<Avma> {
        Function {
            name: self.name,
            linkage_name: self.linkage_name,
            entry: self.entry.to_avma(bias),
            range: range_to_avma(self.range, bias),
            declared: self.declared,
            kind: self.kind,
        }
    }
}

impl ToAvma for Frame {
    type Output = Frame<Avma>;
    fn to_avma(self, bias: u64) -> Frame<Avma> {
        Frame {
            function: self.function,
            linkage_name: self.linkage_name,
            location: self.location,
            declared: self.declared,
            range: range_to_avma(self.range, bias),
            entry: self.entry.to_avma(bias),
            inlined: self.inlined,
        }
    }
}

impl ToAvma for LineRow {
    type Output = LineRow<Avma>;
    fn to_avma(self, bias: u64) -> LineRow<Avma> {
        LineRow {
            file: self.file,
            line: self.line,
            column: self.column,
            is_stmt: self.is_stmt,
            prologue_end: self.prologue_end,
            range: range_to_avma(self.range, bias),
        }
    }
}

impl ToAvma for LineMatch {
    type Output = LineMatch<Avma>;
    fn to_avma(self, bias: u64) -> LineMatch<Avma> {
        LineMatch {
            address: self.address.to_avma(bias),
            file: self.file,
            line: self.line,
            function: self.function.map(|function| function.to_avma(bias)),
        }
    }
}

impl ToAvma for InlinedCopy {
    type Output = InlinedCopy<Avma>;
    fn to_avma(self, bias: u64) -> InlinedCopy<Avma> {
        InlinedCopy {
            name: self.name,
            entry: self.entry.to_avma(bias),
            begin: self.begin.to_avma(bias),
            declared: self.declared,
            ranges: self
                .ranges
                .into_iter()
                .map(|range| range_to_avma(range, bias))
                .collect(),
        }
    }
}
