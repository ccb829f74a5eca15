//! Requests and answers as protobuf (`docs/symbolize.proto`). Texts, functions and stacks of an
//! answer are written once.

use super::json::language;
use super::{BatchAnswer, PositionBatch, SymbolizeRequest};
use crate::error::{Error, Result};
use backtrail_symbol_index::{Frames, FunctionInfo};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;

/// `SymbolizeRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestMessage {
    /// The positions, by build.
    #[prost(message, repeated, tag = "1")]
    pub batches: Vec<BatchMessage>,
}

/// `Batch`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchMessage {
    /// The build id.
    #[prost(string, tag = "1")]
    pub build_id: String,
    /// Positions in the file.
    #[prost(uint64, repeated, tag = "2")]
    pub offsets: Vec<u64>,
    /// Stated addresses.
    #[prost(uint64, repeated, tag = "3")]
    pub addresses: Vec<u64>,
}

/// `SymbolizeResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseMessage {
    /// The texts. The first one is empty.
    #[prost(string, repeated, tag = "1")]
    pub strings: Vec<String>,
    /// The functions.
    #[prost(message, repeated, tag = "2")]
    pub functions: Vec<FunctionMessage>,
    /// The stacks.
    #[prost(message, repeated, tag = "3")]
    pub stacks: Vec<StackMessage>,
    /// The answers, in the order of the request.
    #[prost(message, repeated, tag = "4")]
    pub batches: Vec<AnswerMessage>,
}

/// `Function`. Its numbers are indexes of texts.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FunctionMessage {
    /// The demangled name.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    /// The linkage name.
    #[prost(uint32, tag = "2")]
    pub linkage_name: u32,
    /// The source language.
    #[prost(uint32, tag = "3")]
    pub language: u32,
    /// The type of the object.
    #[prost(uint32, tag = "4")]
    pub this_type: u32,
    /// The types of the parameters.
    #[prost(uint32, repeated, tag = "5")]
    pub parameters: Vec<u32>,
    /// The return type.
    #[prost(uint32, tag = "6")]
    pub result: u32,
    /// Whether the types are known.
    #[prost(bool, tag = "7")]
    pub has_types: bool,
}

/// `Stack`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StackMessage {
    /// The frames, the innermost first.
    #[prost(message, repeated, tag = "1")]
    pub frames: Vec<FrameMessage>,
}

/// `Frame`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FrameMessage {
    /// The index of the function.
    #[prost(uint32, tag = "1")]
    pub function: u32,
    /// The index of the path.
    #[prost(uint32, tag = "2")]
    pub file: u32,
    /// The line.
    #[prost(uint32, tag = "3")]
    pub line: u32,
    /// Whether it is an inlined call.
    #[prost(bool, tag = "4")]
    pub inlined: bool,
}

/// `Answer`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AnswerMessage {
    /// The build id.
    #[prost(string, tag = "1")]
    pub build_id: String,
    /// The state.
    #[prost(string, tag = "2")]
    pub state: String,
    /// The index of each position's stack.
    #[prost(uint32, repeated, tag = "3")]
    pub stacks: Vec<u32>,
    /// How much the build's files say.
    #[prost(string, tag = "4")]
    pub detail: String,
}

/// Reads a request.
pub(super) fn read(bytes: &[u8]) -> Result<SymbolizeRequest> {
    let request = RequestMessage::decode(bytes)
        .map_err(|error| Error::Invalid(format!("the request's protobuf is not as documented: {error}")))?;
    Ok(request.into())
}

impl From<RequestMessage> for SymbolizeRequest {
    fn from(request: RequestMessage) -> Self {
        let batches = request.batches.into_iter().map(|batch| PositionBatch {
            build_id: batch.build_id,
            offsets: batch.offsets,
            addresses: batch.addresses,
        });
        Self {
            batches: batches.collect(),
        }
    }
}

/// Writes an answer.
pub(super) fn write(answers: &[BatchAnswer]) -> Vec<u8> {
    message(answers).encode_to_vec()
}

/// Builds the message of an answer.
pub(super) fn message(answers: &[BatchAnswer]) -> ResponseMessage {
    let mut tables = Tables::default();
    let _ = tables.text("");
    let batches = answers.iter().map(|answer| AnswerMessage {
        build_id: answer.build_id.clone(),
        state: answer.state.clone(),
        stacks: answer.frames.iter().map(|frames| tables.stack(frames)).collect(),
        detail: answer.detail.unwrap_or_default().to_owned(),
    });
    let batches = batches.collect();
    ResponseMessage {
        strings: tables.strings,
        functions: tables.functions,
        stacks: tables.stacks,
        batches,
    }
}

/// The tables of an answer. The shared values of an index are compared by their addresses.
#[derive(Default)]
struct Tables<'a> {
    texts: HashMap<&'a str, u32>,
    strings: Vec<String>,
    known_functions: HashMap<*const FunctionInfo, u32>,
    functions: Vec<FunctionMessage>,
    known_stacks: HashMap<*const (), u32>,
    stacks: Vec<StackMessage>,
}

impl<'a> Tables<'a> {
    fn text(&mut self, text: &'a str) -> u32 {
        // A request has at most 100 000 positions, so that the numbers fit.
        let next = self.strings.len() as u32;
        let number = *self.texts.entry(text).or_insert(next);
        if number == next {
            self.strings.push(text.to_owned());
        }
        number
    }

    fn function(&mut self, function: &'a Arc<FunctionInfo>) -> u32 {
        if let Some(known) = self.known_functions.get(&Arc::as_ptr(function)) {
            return *known;
        }
        let signature = function.signature.as_deref();
        let message = FunctionMessage {
            name: self.text(&function.name),
            linkage_name: self.text(&function.linkage_name),
            language: self.text(language(function.language).unwrap_or_default()),
            this_type: self.text(
                signature
                    .and_then(|types| types.this.as_deref())
                    .unwrap_or_default(),
            ),
            parameters: signature
                .into_iter()
                .flat_map(|types| &types.parameters)
                .map(|ty| self.text(ty))
                .collect(),
            result: self.text(
                signature
                    .and_then(|types| types.result.as_deref())
                    .unwrap_or_default(),
            ),
            has_types: signature.is_some(),
        };
        let number = self.functions.len() as u32;
        self.functions.push(message);
        self.known_functions.insert(Arc::as_ptr(function), number);
        number
    }

    fn stack(&mut self, frames: &'a Frames) -> u32 {
        let address = Arc::as_ptr(frames).cast::<()>();
        if let Some(known) = self.known_stacks.get(&address) {
            return *known;
        }
        let frames = frames.iter().map(|frame| FrameMessage {
            function: self.function(&frame.function),
            file: self.text(frame.file.as_deref().unwrap_or_default()),
            line: frame.line,
            inlined: frame.inlined,
        });
        let message = StackMessage {
            frames: frames.collect(),
        };
        let number = self.stacks.len() as u32;
        self.stacks.push(message);
        self.known_stacks.insert(address, number);
        number
    }
}
