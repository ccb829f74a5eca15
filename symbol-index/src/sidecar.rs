//! The sidecar of a GSYM: what GSYM cannot store. [`format`] describes the bytes.

mod block;
mod format;
mod reader;
mod writer;

pub use block::{BlockFunction, TypesBlock};
pub use format::{FunctionTypes, SidecarHeader};
pub use reader::Sidecar;
pub use writer::write_sidecar;
