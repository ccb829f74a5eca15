//! The format of the sidecar, version 1. All fixed numbers are little-endian.
//!
//! | part | contents |
//! |---|---|
//! | header | magic, version (u32), checksum of all that follows (u32), lengths, build id |
//! | segments | offset, size, address (u64 each) |
//! | directory | for each block: first address (u64), position (u64), length, inflated length, functions (u32 each) |
//! | blocks | one zstd frame each |
//!
//! A block has the strings, then the signatures, then the functions in address order. Numbers in it
//! are LEB128. An optional reference is 0, or one more than the index.
//!
//! - String: length, bytes (UTF-8).
//! - Signature: reference to `this`, reference to the result, count, indexes of the parameters.
//! - Function: address less the one before, language, reference to the demangled name, and
//!   reference to the signature. Then the count of inlined copies, and a reference to the signature
//!   of each, in the order of the GSYM's inline tree.

use backtrail_symbolizer::types::Language;
use backtrail_symbolizer::{Segment, Signature, SymbolDetail};
use std::sync::Arc;

/// The first bytes of a sidecar.
pub const MAGIC: [u8; 8] = *b"BTSYMTYP";
/// The version that is written and read.
pub const VERSION: u32 = 1;
/// The position after the checksum of the sidecar. The checksum covers the bytes from here on.
pub const CHECKED_FROM: usize = 16;
/// The length of the header before the build id.
pub const FIXED_LEN: usize = 48;
/// The length of a segment.
pub const SEGMENT_LEN: usize = 24;
/// The length of a directory entry.
pub const BLOCK_LEN: usize = 28;
/// The most functions in a block.
pub const MAX_FUNCTIONS: usize = 64;
/// The most bytes of an inflated block.
pub const MAX_BLOCK: usize = 32 << 20;
/// The most segments.
pub const MAX_SEGMENTS: usize = 4096;

/// The facts of the sidecar about the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarHeader {
    /// The build id; empty without one.
    pub build_id: Vec<u8>,
    /// How much the file said about its code.
    pub detail: SymbolDetail,
    /// The segments that are loaded.
    pub segments: Vec<Segment>,
}

/// The facts of the sidecar about a function of the GSYM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTypes {
    /// The first address of the function in the GSYM.
    pub start: u64,
    /// The source language, if known.
    pub language: Option<Language>,
    /// The demangled name, if it does not follow from the name in the GSYM.
    pub readable: Option<Arc<str>>,
    /// The types in the declaration.
    pub signature: Option<Arc<Signature>>,
    /// The types of each inlined copy, in the order of the inline tree.
    pub inlined: Vec<Option<Arc<Signature>>>,
}

/// Returns the number of a language.
pub fn language_number(language: Option<Language>) -> u64 {
    match language {
        Some(Language::C) => 1,
        Some(Language::Cpp) => 2,
        Some(Language::Rust) => 3,
        Some(Language::Go) => 4,
        _ => 0,
    }
}

/// Returns the language with a number.
pub fn language_of(number: u64) -> Option<Language> {
    match number {
        1 => Some(Language::C),
        2 => Some(Language::Cpp),
        3 => Some(Language::Rust),
        4 => Some(Language::Go),
        _ => None,
    }
}

/// Returns the number of a detail.
pub fn detail_number(detail: SymbolDetail) -> u32 {
    match detail {
        SymbolDetail::None => 0,
        SymbolDetail::SymbolTable => 1,
        SymbolDetail::DebugInformation => 2,
        SymbolDetail::SplitDebugInformation => 3,
    }
}

/// Returns the detail with a number.
pub fn detail_of(number: u32) -> Option<SymbolDetail> {
    match number {
        0 => Some(SymbolDetail::None),
        1 => Some(SymbolDetail::SymbolTable),
        2 => Some(SymbolDetail::DebugInformation),
        3 => Some(SymbolDetail::SplitDebugInformation),
        _ => None,
    }
}
