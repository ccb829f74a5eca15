//! From (module, address) to function, inlined calls, file and line; and back. And to the rules by which
//! the caller's registers are found. And to variables and types.
//!
//! [`SymbolFile`] holds the symbols of one ELF file in its stated addresses; [`Symbolizer`] holds
//! the modules of one process and answers in actual addresses. Both know no trace, read no source
//! text, and are `Send + Sync`: tables are prepared once, a compilation unit at a time, when an
//! address first needs them, and searched from then on.
//!
//! The input is not trusted: what is damaged gives fewer answers, time and memory stay in
//! proportion to the file's size.

mod code;
mod constants;
mod demangle;
mod dwarf;
mod error;
mod file;
mod model;
mod names;
mod objects;
mod place;
mod plt;
mod range_map;
mod search;
mod source;
mod split;
mod symbolizer;
mod symbols;
mod tables;
pub mod types;
mod unwind;
mod values;
mod variables;

pub use error::Error;
pub use file::SymbolFile;
pub use model::{
    Declaration, Frame, Function, FunctionKind, InlinedCopy, LineMatch, LineRow, SourceLocation,
};
pub use names::{is_named, is_visible};
pub use place::{CallSite, FrameState, LocationExpression, Piece, Place, Unknown};
pub use search::DebugSearch;
pub use source::FileBytes;
pub use symbolizer::{Module, Symbolizer};
pub use types::EntryId;
pub use unwind::{CfaRule, Expression, Machine, RegisterRule, UnwindRow};
pub use variables::{DataSymbol, Global, Scope, Variable, VariableLocation};
