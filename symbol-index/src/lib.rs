//! Indexes of symbols. An index is made once per build, and answers (build id, file offset) with
//! functions, source lines, inlined calls and types.
//!
//! [`build`] reads all code of a [`SymbolFile`] and writes two files. One is a GSYM of version 1,
//! which other tools read too. The other one has what GSYM cannot store: the types of functions,
//! and the segments, which turn a file offset into an address. [`Index`] reads both.
//!
//! Equal input makes equal bytes, whatever the number of threads. Neither side trusts its input.
//! Memory and time are bounded by the size of the files.
//!
//! # Example
//!
//! Index this program, and look up its `main` function:
//!
//! ```
//! use backtrail_symbol_index::{BuildOptions, Index, OpenOptions, Position, build};
//! use backtrail_symbolizer::{DebugSearch, SymbolFile};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let program = std::path::Path::new("/proc/self/exe");
//! let symbols = SymbolFile::open(program, &DebugSearch::none())?;
//! let files = build(&symbols, &BuildOptions::default())?;
//!
//! let index = Index::open(Arc::new(files.gsym), Arc::new(files.types), &OpenOptions::default())?;
//! let main = symbols.functions_named("main").into_iter().find(|function| *function.name == *"main");
//! let entry = main.ok_or("no main")?.entry;
//! let frames = index.lookup(Position::Address(entry))?;
//! assert_eq!(frames.last().map(|frame| &*frame.function.name), Some("main"));
//! # Ok(())
//! # }
//! ```
//!
//! [`SymbolFile`]: backtrail_symbolizer::SymbolFile

mod address_table;
mod batch;
mod builder;
mod byte_cache;
mod decoded;
mod error;
mod frame;
mod index;
mod names;
mod records;
mod scan;
mod sidecar;
mod varint;

pub use backtrail_symbolizer::types::Language;
pub use backtrail_symbolizer::{FileBytes, Segment, Signature, SymbolDetail};
pub use builder::{BuildOptions, IndexFiles, build};
pub use error::Error;
pub use frame::{Frame, Frames, FunctionInfo, Position};
pub use index::{Index, OpenOptions};
