//! Requests and answers as JSON.

use super::BatchAnswer;
use crate::error::{Error, Result};
use backtrail_symbol_index::{Frame, Language};
use serde::{Deserialize, Serialize};

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SymbolizeRequest {
    /// The positions, by build.
    pub batches: Vec<PositionBatch>,
}

/// Positions in a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PositionBatch {
    /// The build id, in lower-case hexadecimal digits.
    pub build_id: String,
    /// Positions of bytes in the executable or library.
    pub offsets: Vec<u64>,
    /// Addresses as the file states them. They follow the offsets in the answer.
    pub addresses: Vec<u64>,
}

impl PositionBatch {
    /// Returns the number of positions.
    pub fn position_count(&self) -> usize {
        self.offsets.len() + self.addresses.len()
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    batches: Vec<Batch<'a>>,
}

#[derive(Serialize)]
struct Batch<'a> {
    build_id: &'a str,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
    /// The frames of each position.
    frames: Vec<Vec<FrameView<'a>>>,
}

#[derive(Serialize)]
struct FrameView<'a> {
    function: &'a str,
    linkage_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    line: u32,
    inlined: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'static str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    signature: Option<TypeView<'a>>,
}

#[derive(Serialize)]
struct TypeView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    this: Option<&'a str>,
    parameters: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
}

/// Reads a request.
pub(super) fn read(bytes: &[u8]) -> Result<SymbolizeRequest> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::Invalid(format!("the request's JSON is not as documented: {error}")))
}

/// Writes an answer.
pub(super) fn write(answers: &[BatchAnswer]) -> Result<Vec<u8>> {
    let batches = answers.iter().map(|answer| Batch {
        build_id: &answer.build_id,
        state: &answer.state,
        detail: answer.detail,
        frames: answer
            .frames
            .iter()
            .map(|frames| frames.iter().map(view).collect())
            .collect(),
    });
    let answer = Answer {
        batches: batches.collect(),
    };
    serde_json::to_vec(&answer).map_err(|error| Error::Invalid(error.to_string()))
}

fn view(frame: &Frame) -> FrameView<'_> {
    let signature = frame.function.signature.as_ref();
    FrameView {
        function: &frame.function.name,
        linkage_name: &frame.function.linkage_name,
        file: frame.file.as_deref(),
        line: frame.line,
        inlined: frame.inlined,
        language: language(frame.function.language),
        signature: signature.map(|signature| TypeView {
            this: signature.this.as_deref(),
            parameters: signature.parameters.iter().map(|ty| &**ty).collect(),
            result: signature.result.as_deref(),
        }),
    }
}

/// Returns the name of a language in answers.
pub(super) fn language(language: Option<Language>) -> Option<&'static str> {
    match language? {
        Language::C => Some("c"),
        Language::Cpp => Some("c++"),
        Language::Rust => Some("rust"),
        Language::Go => Some("go"),
        _ => None,
    }
}
