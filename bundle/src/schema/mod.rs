//! The two JSON files of a bundle, which encode its [`Manifest`].
//!
//! `trace.json` follows LLDB's `intel-pt` schema (LLDB prints it by `trace schema intel-pt`). Our
//! additions are under keys `"backtrail"`, which LLDB ignores. `meta.json` is not part of LLDB's
//! schema.

mod context;
mod decode;
mod encode;
mod findings;
mod json;
mod meta;
mod node;
mod rules;

pub(crate) use decode::{FileRole, decode_trace};
pub(crate) use encode::encode_trace;
pub(crate) use findings::Findings;
pub(crate) use meta::{decode_meta, encode_meta};
pub(crate) use node::Node;

use crate::{Error, Result};
use serde_json::Value;

/// The file name of the trace description.
pub(crate) const TRACE_JSON: &str = "trace.json";
/// The file name of our own metadata.
pub(crate) const META_JSON: &str = "meta.json";
/// The key of our additions in `trace.json`.
const OURS: &str = "backtrail";
/// The version of our additions; readers refuse higher ones. Version 2 added `codeVersions`, and
/// version 3 the times of mappings.
const VERSION: u64 = 3;
/// The version of `sharedMemory`; readers ignore others.
const SHARED_MEMORY_VERSION: u64 = 1;
/// The longest accepted description in bytes.
const MAX_JSON: u64 = 16 << 20;

/// Parses a JSON file. `name` is its name in errors.
pub(crate) fn parse_json(bytes: &[u8], name: &str) -> Result<Value> {
    if bytes.len() as u64 > MAX_JSON {
        return Err(Error::malformed(name, "a trace description has at most 16 MiB"));
    }
    json::parse(bytes, json::MAX_MEMORY).map_err(|refused| match refused {
        json::ParseError::Memory => Error::malformed(name, "it needs too much memory"),
        json::ParseError::Syntax(error) => Error::malformed(name, format!("this is not JSON ({error})")),
    })
}
