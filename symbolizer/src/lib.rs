//! Symbolizes addresses of x86-64 ELF files: functions, inlined calls, source lines, call frame
//! information, variables and types.
//!
//! [`SymbolFile`] holds the symbols of one ELF file, and uses stated addresses ([`Svma`]).
//! [`Symbolizer`] holds the modules of one process, and uses actual addresses ([`Avma`]). Neither
//! uses a trace or reads source text. Both are `Send + Sync`. Tables are built on demand, one
//! compilation unit at a time.
//!
//! The input is not trusted. Damaged input leads to fewer results. Time and memory are bounded in
//! proportion to the file's size.
//!
//! # Example
//!
//! Symbolize the `main` function of this program:
//!
//! ```
//! use backtrail_symbolizer::{DebugSearch, Error, SymbolFile};
//!
//! # fn main() -> Result<(), Error> {
//! let program = std::path::Path::new("/proc/self/exe");
//! let symbols = SymbolFile::open(program, &DebugSearch::none())?;
//! for function in symbols.functions_named("main") {
//!     for frame in symbols.frames_at(function.entry) {
//!         let line = frame.location.map(|place| format!("{}:{}", place.file, place.line));
//!         println!("{:#x} {} {line:?}", function.entry.0, frame.function);
//!     }
//! }
//! # assert!(!symbols.functions_named("main").is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! [`Svma`]: backtrail_pt::Svma [`Avma`]: backtrail_pt::Avma

mod code;
mod code_part;
mod constants;
mod debug_ids;
mod demangle;
mod dwarf;
mod entry_id;
mod error;
mod file;
mod go_names;
mod go_table;
mod location;
mod mini_debug;
mod model;
mod names;
mod objects;
mod parts;
mod plt;
mod range_map;
mod search;
mod source;
mod sources;
mod split_files;
mod supplementary;
mod symbol;
mod symbolizer;
mod symbols;
mod tables;
pub mod types;
mod unwind;
mod values;
mod variables;

pub use code_part::{CodeGroup, CodePart, CodeParts, FileNumber, InlinedPart, PartRow, Segment, Signature};
pub use demangle::demangled;
pub use entry_id::EntryId;
pub use error::Error;
pub use file::SymbolFile;
pub use location::{CallSite, FrameState, LocationExpression, Piece, Unknown, ValueLocation};
pub use model::{
    CodeSymbol, Declaration, Frame, Function, FunctionKind, InlinedCopy, LineMatch, LineRow, SampleFrame,
    SourceLocation, SymbolDetail,
};
pub use names::{is_named, is_visible};
pub use search::DebugSearch;
pub use source::{FileBytes, map_file};
pub use symbolizer::{Module, Symbolizer};
pub use unwind::{CfaRule, Expression, Machine, RegisterRule, UnwindRow};
pub use variables::{DataSymbol, Global, Scope, Variable, VariableLocation};
