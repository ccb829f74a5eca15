//! Uploads of debug files as Sentry's clients send them: chunks, and requests to assemble them.

use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::server::api::json::Body;
use crate::server::caller::Caller;
use crate::server::failure::Failure;
use crate::symbols::chunks::{self, CHUNK, FileState, Wanted};
use crate::symbols::debug_id::debug_id;
use axum::extract::multipart::Multipart;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of a request with chunks.
pub const REQUEST_LIMIT: usize = 20 << 20;
/// The most bytes of a request to assemble files.
pub const ASSEMBLY_LIMIT: usize = 8 << 20;
/// The most bytes of chunks in a request of a client that keeps to the limits.
const REQUEST: usize = 16 << 20;
/// The most chunks in a request.
const CHUNKS: usize = 16;

/// A file of a request to assemble.
#[derive(Deserialize)]
pub struct WantedFile {
    name: String,
    #[serde(default)]
    debug_id: Option<String>,
    #[serde(default)]
    chunks: Vec<String>,
}

/// Returns the limits of chunks.
pub async fn options(State(hub): State<Arc<Hub>>, Path(org): Path<String>) -> Json<Value> {
    // The name comes back in an address, so it is not repeated as it came.
    let org: String = org
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
        .collect();
    let org = if org.is_empty() { "hub".to_owned() } else { org };
    Json(json!({
        "url": format!("{}/api/0/organizations/{org}/chunk-upload/", hub.config.public_url()),
        "chunkSize": CHUNK,
        "chunksPerRequest": CHUNKS,
        "maxRequestSize": REQUEST,
        "maxFileSize": hub.config.limits.bundle_bytes,
        "maxWait": 60,
        "concurrency": 2,
        "hashAlgorithm": "sha1",
        "compression": ["gzip"],
        "accept": ["debug_files"],
    }))
}

/// Takes chunks: parts named `file` or `file_gzip`, whose file name is the SHA-1 of the content.
///
/// # Errors
/// Fails if a part is malformed, too large, or not what its SHA-1 says.
pub async fn upload(State(hub): State<Arc<Hub>>, mut parts: Multipart) -> Result<StatusCode> {
    let malformed = |error: axum::extract::multipart::MultipartError| {
        if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
            Error::TooLarge(format!("a request has at most {REQUEST} bytes of chunks"))
        } else {
            Error::Invalid("the request is no well-formed multipart/form-data".to_owned())
        }
    };
    let mut count = 0;
    while let Some(part) = parts.next_field().await.map_err(malformed)? {
        let is_gzip = match part.name() {
            Some("file") => false,
            Some("file_gzip") => true,
            _ => {
                return Err(Error::Invalid("a part is named `file` or `file_gzip`".to_owned()));
            }
        };
        count += 1;
        if count > CHUNKS {
            return Err(Error::Invalid(format!("a request has at most {CHUNKS} chunks")));
        }
        let sha1 = part.file_name().unwrap_or_default().to_owned();
        let bytes = part.bytes().await.map_err(malformed)?;
        chunks::add(&hub, &sha1, bytes, is_gzip).await?;
    }
    Ok(StatusCode::OK)
}

/// Begins to make files of their chunks, and returns how far each is. Clients repeat the request.
///
/// # Errors
/// Fails if the request is malformed.
pub async fn assemble(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path((_org, _project)): Path<(String, String)>,
    Body(wanted): Body<BTreeMap<String, WantedFile>>,
) -> Result<Json<Value>> {
    let wanted = wanted.into_iter().map(|(sha1, file)| {
        let wanted = Wanted {
            name: file.name,
            debug_id: file.debug_id,
            chunks: file.chunks,
        };
        (sha1, wanted)
    });
    let states = chunks::assemble(&hub, &caller.name, wanted.collect()).await?;
    let states = states
        .iter()
        .map(|(sha1, state)| (sha1.clone(), describe(sha1, state)));
    Ok(Json(Value::Object(states.collect::<Map<_, _>>())))
}

/// Returns the state of a file, as clients read it.
fn describe(sha1: &str, state: &FileState) -> Value {
    match state {
        FileState::Missing(chunks) => json!({ "state": "not_found", "missingChunks": chunks }),
        FileState::Assembling => json!({ "state": "assembling", "missingChunks": [] }),
        FileState::Refused(detail) => {
            json!({ "state": "error", "missingChunks": [], "detail": detail })
        }
        FileState::Stored(build_id, name) => {
            let id = debug_id(build_id).unwrap_or_default();
            json!({
                "state": "ok",
                "missingChunks": [],
                "detail": null,
                "dif": {
                    "id": sha1,
                    "uuid": id,
                    "debugId": id,
                    "codeId": build_id,
                    "objectName": name,
                    "symbolType": "elf",
                    "cpuName": "any",
                    "sha1": sha1,
                    "data": {},
                },
            })
        }
    }
}

/// Adds the sentence of an error under the key that Sentry's clients show.
pub async fn describe_failures(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Failure>() {
        Some(failure) if response.status().is_client_error() => {
            let text = failure.0.to_string();
            let status = response.status();
            let mut described = (status, Json(json!({ "error": text, "detail": text }))).into_response();
            for (name, value) in response.headers() {
                if !described.headers().contains_key(name) {
                    described.headers_mut().insert(name, value.clone());
                }
            }
            described.headers_mut().remove("content-length");
            described
        }
        _ => response,
    }
}
