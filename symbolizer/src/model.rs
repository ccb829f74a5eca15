//! The answers: functions, frames, line rows, and where lines and functions are.
//!
//! Each is generic over its address space `A`: [`Svma`] when a [`crate::SymbolFile`] answers,
//! [`Avma`] when a [`crate::Symbolizer`] does. Strings are shared, so a copy is cheap.

use backtrail_pt::{Avma, Svma};
use std::ops::Range;
use std::sync::Arc;

/// A file and line of source text, as the compiler wrote them.
pub type Declaration = (Arc<str>, u32);

/// What stands behind a function name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FunctionKind {
    /// Code of a function, from DWARF or a symbol of type `STT_FUNC`.
    Function,
    /// A linkage stub (`puts@plt`), named by the relocation of the slot that it jumps through.
    Plt,
    /// A resolver (`STT_GNU_IFUNC`): returns the address of the implementation to use.
    IfuncResolver,
    /// A symbol without type in a code section: hand-written assembler.
    Label,
}

/// A physical function: one that has its own code, not an inlined copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function<A = Svma> {
    /// The demangled name, with C++ parameters, without Rust hashes. `foo@plt` for a stub.
    pub name: Arc<str>,
    /// The name as the linker knows it; the same as `name` where nothing was mangled.
    pub linkage_name: Arc<str>,
    /// Where calls enter. It identifies the function within its module.
    pub entry: A,
    /// One contiguous part: the one that holds the address asked for, else the one at `entry`.
    /// A function split into hot and cold code has more ([`crate::SymbolFile::parts_of`]).
    pub range: Range<A>,
    /// Where the source declares it, if DWARF says so.
    pub declared: Option<Declaration>,
    /// What it is.
    pub kind: FunctionKind,
}

/// One entry of a symbolic stack at an address: an inlined call, or the function itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame<A = Svma> {
    /// The demangled name.
    pub function: Arc<str>,
    /// The name as the linker knows it.
    pub linkage_name: Arc<str>,
    /// Where this frame is in its source: for the innermost frame the line of the address, for the
    /// others the line of the inlined call that leads to the next inner frame.
    pub location: Option<SourceLocation>,
    /// Where the source declares the function.
    pub declared: Option<Declaration>,
    /// The contiguous code of this frame that holds the address: of the inlined copy, or of the function.
    pub range: Range<A>,
    /// The lowest address of this inlined copy, or the function's entry: tells copies apart.
    pub entry: A,
    /// An inlined copy: the next frame in the list is its caller.
    pub inlined: bool,
}

/// A place in source text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLocation {
    /// The path, joined with the compilation directory where the compiler wrote a relative one.
    pub file: Arc<str>,
    /// 1-based; 0 where the compiler names no line (code of its own making).
    pub line: u32,
    /// 1-based; 0 where it is not known.
    pub column: u32,
}

/// A row of the line table and the addresses it covers (DWARF 5, section 6.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineRow<A = Svma> {
    /// The path; empty where the table names no file.
    pub file: Arc<str>,
    /// 1-based; 0 where the compiler names no line.
    pub line: u32,
    /// 1-based; 0 where it is not known.
    pub column: u32,
    /// The start is a recommended breakpoint: the beginning of a statement.
    pub is_stmt: bool,
    /// The start is where the function's prologue has ended.
    pub prologue_end: bool,
    /// From the row's address to the next address that has a row, never empty.
    pub range: Range<A>,
}

/// A place where the code of a source line begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineMatch<A = Svma> {
    /// Start of the first statement of the line in this function or inlined copy.
    pub address: A,
    /// The path.
    pub file: Arc<str>,
    /// The line that has code: the one asked for, or the nearest after it.
    pub line: u32,
    /// The physical function around `address`. Where `address` is its entry, a breakpoint belongs
    /// at [`crate::SymbolFile::after_prologue`], as GDB does.
    pub function: Option<Function<A>>,
}

/// An inlined copy of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InlinedCopy<A = Svma> {
    /// The demangled name of the inlined function.
    pub name: Arc<str>,
    /// Its lowest address.
    pub entry: A,
    /// Its code.
    pub ranges: Vec<Range<A>>,
}

/// Moves an answer from a module's stated addresses to the addresses of a process.
pub(crate) trait ToAvma {
    /// The same answer in [`Avma`].
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
            ranges: self
                .ranges
                .into_iter()
                .map(|range| range_to_avma(range, bias))
                .collect(),
        }
    }
}
