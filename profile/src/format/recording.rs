//! Recordings by `backtrail profile record`: blocks of samples that a kill cannot damage.
//!
//! A recording is a [`HEADER`], and then blocks in any order, each with a checksum (`block.rs`). A
//! block belongs to a segment. Each block adds texts, modules, frames, stacks and threads to the
//! tables of its segment (`encode.rs`, `decode.rs`). Its samples and branches (`branch_stacks.rs`)
//! refer to them. Segments are independent, so that a writer may replace the
//! oldest ones. The functions of generated code (`generated.rs`) belong to a process and a time,
//! and name samples of any block (`naming.rs`).

mod block;
mod branch_stacks;
mod branches;
mod decode;
mod encode;
mod generated;
mod naming;
mod scan;
mod varint;

pub use branches::read_branches;
pub use decode::read;
pub use encode::SegmentEncoder;
pub use generated::{GeneratedFunction, GeneratedLine};

/// The first bytes of a recording. The digit is the version of the format.
pub const HEADER: [u8; 16] = *b"backtrail-prof1\n";

#[cfg(test)]
mod tests;
