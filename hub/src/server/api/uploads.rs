//! Resumable uploads: TUS 1.0.0 with creation, expiration and termination.

use crate::database::uploads::{Upload, UploadKind};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::ingest::upload::{self, Wish};
use crate::server::caller::Caller;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The version of the protocol.
const VERSION: &str = "1.0.0";
/// The extensions of the protocol that this server has.
const EXTENSIONS: &str = "creation,creation-with-upload,expiration,termination";
/// The time for which the last request of a debug file waits for its check. It is below the time
/// after which clients and proxies give up.
const CHECK: Duration = Duration::from_secs(20);
/// The time between two questions whether a check has ended.
const PAUSE: Duration = Duration::from_millis(50);
/// The media type of a part.
const PART: &str = "application/offset+octet-stream";

/// Returns the abilities of this server.
pub async fn abilities(State(hub): State<Arc<Hub>>) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    set(&mut response, "tus-version", VERSION);
    set(&mut response, "tus-extension", EXTENSIONS);
    set(
        &mut response,
        "tus-max-size",
        &hub.config.limits.bundle_bytes.to_string(),
    );
    with_version(response)
}

/// Begins an upload, and returns its address. `Upload-Metadata` has `kind`, `subject` and `sha256`.
///
/// # Errors
/// Fails if the headers are malformed, or the hub does not want the upload.
pub async fn create(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    if !is_supported(&headers) {
        return Ok(unsupported());
    }
    let length = number(&headers, "upload-length")?;
    let metadata = metadata(&headers)?;
    let field = |name: &str| {
        let value = metadata.get(name).map(String::as_str);
        value.ok_or_else(|| Error::Invalid(format!("`Upload-Metadata` needs `{name}`")))
    };
    let kind = field("kind")?;
    let wish = Wish {
        kind: UploadKind::named(kind)
            .ok_or_else(|| Error::Invalid("`kind` is `bundle` or `debug`".to_owned()))?,
        subject: field("subject")?,
        sha256: field("sha256")?,
        length,
        token: caller.token.as_deref().unwrap_or(&caller.name),
    };
    let mut upload = upload::begin(&hub.database, &hub.config.limits, &wish).await?;
    if has_part(&headers) && upload.received == 0 {
        upload = upload::add(&hub.database, &hub.objects, upload, 0, body.into_data_stream()).await?;
    }
    conclude(&hub, &upload).await?;
    let mut response = StatusCode::CREATED.into_response();
    let place = format!("{}/api/v1/uploads/{}", hub.config.public_url(), upload.id);
    set(&mut response, header::LOCATION.as_str(), &place);
    describe(&mut response, &upload);
    Ok(with_version(response))
}

/// Returns the offset of an upload.
///
/// # Errors
/// Fails if the upload is unknown, or another token's.
pub async fn offset(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response> {
    let upload = own_upload(&hub, &caller, &id).await?;
    let mut response = StatusCode::OK.into_response();
    set(&mut response, "upload-length", &upload.length.to_string());
    describe(&mut response, &upload);
    Ok(with_version(response))
}

/// Continues an upload at its offset.
///
/// # Errors
/// Fails if the offset is wrong, or the upload unknown, or another token's.
pub async fn add(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    if !is_supported(&headers) {
        return Ok(unsupported());
    }
    if !has_part(&headers) {
        let text = format!("a part has the media type {PART}");
        let refusal = Json(json!({ "error": text }));
        return Ok(with_version(
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, refusal).into_response(),
        ));
    }
    let offset = number(&headers, "upload-offset")?;
    let upload = own_upload(&hub, &caller, &id).await?;
    let upload = upload::add(
        &hub.database,
        &hub.objects,
        upload,
        offset,
        body.into_data_stream(),
    )
    .await?;
    conclude(&hub, &upload).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    describe(&mut response, &upload);
    Ok(with_version(response))
}

/// Ends an upload that is not complete, and forgets what has arrived.
///
/// # Errors
/// Fails if the upload is unknown, or another token's, or complete.
pub async fn end(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response> {
    let upload = own_upload(&hub, &caller, &id).await?;
    if upload.is_complete {
        return Err(Error::Conflict("the upload is complete".to_owned()));
    }
    upload::remove(&hub.database, &hub.objects, &upload).await?;
    Ok(with_version(StatusCode::NO_CONTENT.into_response()))
}

/// Returns an upload of this caller. Others' uploads do not exist for it.
async fn own_upload(hub: &Hub, caller: &Caller, id: &str) -> Result<Upload> {
    let token = caller.token.as_deref().unwrap_or(&caller.name);
    match hub.database.upload(id).await {
        Ok(upload) if upload.token == token => Ok(upload),
        Ok(_) => Err(Error::Absent(format!("upload {id}"))),
        Err(Error::Absent(what)) => match hub.database.refusal(id, token).await? {
            Some(problem) => Err(Error::Invalid(problem)),
            None => Err(Error::Absent(what)),
        },
        Err(error) => Err(error),
    }
}

/// Wakes the worker after the last part. For a debug file, waits for the check.
///
/// # Errors
/// Fails with the reason if the file is refused in this time.
async fn conclude(hub: &Hub, upload: &Upload) -> Result<()> {
    if !upload.is_complete {
        return Ok(());
    }
    if upload.kind == UploadKind::Bundle {
        hub.arrivals.note(Instant::now());
    }
    hub.wake.notify_one();
    if upload.kind != UploadKind::Debug {
        // The crash has the reason for which its bundle is refused.
        return Ok(());
    }
    let end = Instant::now() + CHECK;
    while Instant::now() < end {
        match hub.database.upload(&upload.id).await {
            Ok(_) => tokio::time::sleep(PAUSE).await,
            Err(Error::Absent(_)) => {
                let problem = hub.database.refusal(&upload.id, &upload.token).await?;
                return problem.map_or(Ok(()), |problem| Err(Error::Invalid(problem)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn describe(response: &mut Response, upload: &Upload) {
    set(response, "upload-offset", &upload.received.to_string());
    let expires = std::time::UNIX_EPOCH + std::time::Duration::from_micros(upload.expires.unsigned_abs());
    set(response, "upload-expires", &crate::clock::http_date(expires));
}

fn with_version(mut response: Response) -> Response {
    set(&mut response, "tus-resumable", VERSION);
    response
}

fn unsupported() -> Response {
    let text = format!("this server has TUS {VERSION}; send the header `Tus-Resumable: {VERSION}`");
    let refusal = Json(json!({ "error": text }));
    let mut response = (StatusCode::PRECONDITION_FAILED, refusal).into_response();
    set(&mut response, "tus-version", VERSION);
    with_version(response)
}

fn is_supported(headers: &HeaderMap) -> bool {
    headers.get("tus-resumable").is_some_and(|value| value == VERSION)
}

fn has_part(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value == PART)
}

fn number(headers: &HeaderMap, name: &str) -> Result<u64> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| Error::Invalid(format!("the header `{name}` needs a number")))
}

/// Returns the pairs of `Upload-Metadata`: a key, a space, and the value in base64.
fn metadata(headers: &HeaderMap) -> Result<HashMap<String, String>> {
    let malformed = || Error::Invalid("`Upload-Metadata` needs keys with values in base64".to_owned());
    let Some(value) = headers.get("upload-metadata") else {
        return Ok(HashMap::new());
    };
    let text = value.to_str().map_err(|_| malformed())?;
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
            let bytes = STANDARD.decode(value.trim()).map_err(|_| malformed())?;
            let value = String::from_utf8(bytes).map_err(|_| malformed())?;
            Ok((key.to_owned(), value))
        })
        .collect()
}

fn set(response: &mut Response, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded() {
        let mut headers = HeaderMap::new();
        headers.insert(
            "upload-metadata",
            HeaderValue::from_static("kind YnVuZGxl, flag ,subject YQ=="),
        );
        let found = metadata(&headers).unwrap();
        assert_eq!(found["kind"], "bundle");
        assert_eq!(found["subject"], "a");
        assert_eq!(found["flag"], "");
        headers.insert("upload-metadata", HeaderValue::from_static("kind !!"));
        assert!(metadata(&headers).is_err());
    }
}
