//! Symbolizes offsets of builds, for profiles and other programs.

mod call;
mod json;
mod proto;
#[cfg(test)]
mod tests;

pub use call::symbolize_call;
pub use json::{PositionBatch, SymbolizeRequest};

use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::blocking;
use crate::symbols::debug_id::is_build_id;
use crate::symbols::index_state::{BuildSymbols, symbols_of};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use backtrail_pt::{FileOffset, Svma};
use backtrail_symbol_index::{Frame, Frames, Position, SymbolDetail};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The largest request in bytes.
pub const MAX_BODY: usize = 8 << 20;
/// The most batches of a request.
const MAX_BATCHES: usize = 256;
/// The most positions of a request.
const MAX_POSITIONS: usize = 100_000;
/// The most bytes of an answer, about.
const MAX_ANSWER: usize = 64 << 20;
/// The media type of protobuf.
const PROTOBUF: &str = "application/x-protobuf";

/// The frames at the positions of a build, or the reason why there are none.
struct BatchAnswer {
    build_id: String,
    /// `ok`, `pending`, `absent`, or `malformed: ` and a sentence.
    state: String,
    /// How much the build's files say, if the state is `ok`.
    detail: Option<&'static str>,
    /// The frames of each position, if the state is `ok`.
    frames: Vec<Frames>,
}

/// Returns the name of a detail in answers.
fn detail_name(detail: SymbolDetail) -> &'static str {
    match detail {
        SymbolDetail::None => "none",
        SymbolDetail::SymbolTable => "symbol_table",
        SymbolDetail::SplitDebugInformation => "split_debug_information",
        SymbolDetail::DebugInformation => "debug_information",
    }
}

/// Returns the frames at offsets of builds. Request and answer are JSON or protobuf.
///
/// # Errors
/// Fails if the request is malformed or too large, or if the hub cannot read its files.
pub async fn symbolize(State(hub): State<Arc<Hub>>, request: Request) -> Result<Response> {
    let media = request.headers().get(header::CONTENT_TYPE);
    let is_protobuf = media.is_some_and(|media| media.as_bytes().starts_with(PROTOBUF.as_bytes()));
    let bytes = Bytes::from_request(request, &hub).await.map_err(|rejection| {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            Error::TooLarge(format!("a request has at most {} MiB", MAX_BODY >> 20))
        } else {
            Error::Invalid("the request ended early".to_owned())
        }
    })?;
    let request = match is_protobuf {
        true => proto::read(&bytes)?,
        false => json::read(&bytes)?,
    };
    let answers = answers(&hub, request).await?;
    let (media, body) = blocking(move || match is_protobuf {
        true => Ok((PROTOBUF, proto::write(&answers))),
        false => Ok(("application/json", json::write(&answers)?)),
    })
    .await?;
    Ok(([(header::CONTENT_TYPE, media)], body).into_response())
}

/// Answers the batches of a request.
async fn answers(hub: &Arc<Hub>, request: SymbolizeRequest) -> Result<Vec<BatchAnswer>> {
    check(&request)?;
    let mut answers = Vec::with_capacity(request.batches.len());
    // The answer must not grow beyond its limit before it is refused.
    let mut bytes = 0;
    for batch in request.batches {
        let answer = answer(hub, batch).await?;
        bytes += size(&answer);
        if bytes > MAX_ANSWER {
            return Err(Error::TooLarge(format!(
                "the answer would have more than {} MiB; send fewer offsets at once",
                MAX_ANSWER >> 20
            )));
        }
        answers.push(answer);
    }
    Ok(answers)
}

fn check(request: &SymbolizeRequest) -> Result<()> {
    if request.batches.len() > MAX_BATCHES {
        return Err(Error::TooLarge(format!(
            "a request has at most {MAX_BATCHES} batches"
        )));
    }
    let positions = request
        .batches
        .iter()
        .map(PositionBatch::position_count)
        .sum::<usize>();
    if positions > MAX_POSITIONS {
        return Err(Error::TooLarge(format!(
            "a request has at most {MAX_POSITIONS} offsets; this one has {positions}"
        )));
    }
    for (number, batch) in request.batches.iter().enumerate() {
        if !is_build_id(&batch.build_id) {
            return Err(Error::Invalid(format!(
                "the build id of batch {number} is not one; write it in lower-case hexadecimal digits"
            )));
        }
    }
    Ok(())
}

async fn answer(hub: &Arc<Hub>, batch: PositionBatch) -> Result<BatchAnswer> {
    let build_id = batch.build_id.clone();
    let without = |state: &str| BatchAnswer {
        build_id: build_id.clone(),
        state: state.to_owned(),
        detail: None,
        frames: Vec::new(),
    };
    let index = match symbols_of(hub, &batch.build_id).await? {
        BuildSymbols::Ready(index) => index,
        BuildSymbols::Pending => return Ok(without("pending")),
        BuildSymbols::Absent => return Ok(without("absent")),
        BuildSymbols::Malformed(reason) => return Ok(without(&format!("malformed: {reason}"))),
    };
    let detail = Some(detail_name(index.detail()));
    let offsets = batch.offsets.iter();
    let mut positions: Vec<_> = offsets.map(|at| Position::Offset(FileOffset(*at))).collect();
    let addresses = batch.addresses.iter();
    positions.extend(addresses.map(|at| Position::Address(Svma(*at))));
    let found = blocking(move || {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Ok(index.lookup_all(&positions, threads))
    });
    Ok(match found.await? {
        Ok(frames) => BatchAnswer {
            detail,
            frames,
            ..without("ok")
        },
        Err(error) => without(&format!("malformed: {error}")),
    })
}

/// Returns about how many bytes an answer has as JSON.
fn size(answer: &BatchAnswer) -> usize {
    let frame = |frame: &Frame| {
        let function = &frame.function;
        let types = function.signature.as_ref().map_or(0, |signature| {
            let texts = signature.parameters.iter().chain(&signature.this);
            texts.chain(&signature.result).map(|text| text.len() + 4).sum()
        });
        let path = frame.file.as_ref().map_or(0, |file| file.len());
        function.name.len() + function.linkage_name.len() + path + types + 100
    };
    let positions = answer.frames.iter();
    positions
        .map(|frames| frames.iter().map(frame).sum::<usize>() + 2)
        .sum()
}
