//! The questions about a binary that feedback needs answered.

use super::branch_profile::CodeRange;
use super::pseudo_probe::PseudoProbes;
use backtrail_pt::Svma;
use std::ops::Range;
use std::sync::Arc;

/// A place in the source, of a function that may be inlined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceFrame {
    /// The linkage name of the function.
    pub function: Arc<str>,
    /// The line.
    pub line: u32,
    /// The line of the function's declaration.
    pub declared_line: u32,
    /// DWARF's discriminator of the line.
    pub discriminator: u32,
}

/// How an instruction transfers control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No transfer: the next instruction follows.
    None,
    /// A call.
    Call,
    /// A return.
    Return,
    /// A jump that is always taken. `None`: an indirect one.
    Jump(Option<Svma>),
    /// A jump that is taken or not.
    Conditional(Svma),
}

/// A contiguous function as the linker knows it. The cold part of a function is one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedFunction {
    /// The name by which BOLT knows it: that of the symbol, and a number if the symbol is local.
    pub name: Arc<str>,
    /// The addresses.
    pub range: Range<Svma>,
}

/// A binary: its instructions, functions and lines.
pub trait Binary {
    /// Returns the address and the length of the first instruction at or after an address. `None`:
    /// no function of the binary has one.
    fn instruction(&self, at: Svma) -> Option<(Svma, u8)>;

    /// Returns whether straight code has an unconditional jump or a return before its last
    /// instruction. Then branches were lost, and it did not run as a whole.
    fn is_interrupted(&self, range: CodeRange) -> bool;

    /// Returns the places of an instruction, the outermost function first. Empty: unknown.
    fn source_frames(&self, at: Svma) -> Vec<SourceFrame>;

    /// Returns the address ranges of the function at an address. Empty: unknown.
    fn function_ranges(&self, at: Svma) -> Vec<Range<Svma>>;

    /// Returns the linkage name of the function whose entry is at an address.
    fn entry(&self, at: Svma) -> Option<Arc<str>>;

    /// Returns how the instruction at an address transfers control. `None`: no function of the
    /// compiler has an instruction that starts there.
    fn transfer(&self, at: Svma) -> Option<Transfer>;

    /// Returns the address of the instruction that ends at an address, or before it within the same
    /// function.
    fn instruction_before(&self, at: Svma) -> Option<Svma>;

    /// Returns the pseudo-probes of the compiler. `None`: the build has none.
    fn probes(&self) -> Option<&PseudoProbes> {
        None
    }

    /// Returns the symbol's function at an address.
    fn linked_function(&self, at: Svma) -> Option<LinkedFunction>;
}
