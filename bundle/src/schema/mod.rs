//! The two JSON files of a bundle and the [`Manifest`] they say.
//!
//! `trace.json` is LLDB's `intel-pt` schema (`trace schema intel-pt` in LLDB prints it); what it has no place
//! for stands under keys `"backtrail"`, which LLDB passes over. `meta.json` is ours alone.

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

/// The description's name in a bundle.
pub(crate) const TRACE_JSON: &str = "trace.json";
/// The name of our own file.
pub(crate) const META_JSON: &str = "meta.json";
/// The key of what is ours in `trace.json`.
const OURS: &str = "backtrail";
/// The version of what is ours. A reader refuses higher ones. 2 brought `codeVersions`.
const VERSION: u64 = 2;
/// No description is longer.
const MAX_JSON: u64 = 16 << 20;

/// Parses a JSON file named `name`.
pub(crate) fn parse_json(bytes: &[u8], name: &str) -> Result<Value> {
    if bytes.len() as u64 > MAX_JSON {
        return Err(Error::malformed(
            name,
            "more than 16 MiB is no description of a trace",
        ));
    }
    json::parse(bytes, json::MAX_MEMORY).map_err(|refused| match refused {
        json::Refused::Memory => Error::malformed(name, "so many values are no description of a trace"),
        json::Refused::Syntax(error) => Error::malformed(name, format!("this is not JSON ({error})")),
    })
}
