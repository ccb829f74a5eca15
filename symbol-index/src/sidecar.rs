//! The sidecar of a GSYM: what GSYM cannot store. [`format`] describes the bytes.

mod format;
mod reader;
mod varint;
mod writer;

pub use format::{FunctionTypes, SidecarHeader};
pub use reader::{Sidecar, TypesBlock};
pub use writer::write_sidecar;
