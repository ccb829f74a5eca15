//! The debuginfod server: files of builds by build id (debuginfod(8)).

use crate::database::blobs::{BuildFile, FileKind};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::blob;
use crate::symbols::debug_id::is_build_id;
use crate::symbols::{fetch, section as sections};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use std::ops::Range;
use std::sync::Arc;
use tokio_util::io::ReaderStream;

/// The longest name of a section in bytes.
const MAX_SECTION: usize = 128;
/// The longest path of a source file in bytes.
const MAX_PATH: usize = 4096;

/// Returns the debug information of a build. A stripped file never is.
///
/// # Errors
/// Fails if neither the hub nor an upstream server has it.
pub async fn debuginfo(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let file = find(&hub, &id, &FileKind::Debuginfo).await?;
    send(&hub, &file, &headers).await
}

/// Returns the executable or library of a build.
///
/// # Errors
/// Fails if neither the hub nor an upstream server has it.
pub async fn executable(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let file = find(&hub, &id, &FileKind::Executable).await?;
    send(&hub, &file, &headers).await
}

/// Returns a section of the debug file, or else of the executable.
///
/// # Errors
/// Fails if neither the hub nor an upstream server has it.
pub async fn section(
    State(hub): State<Arc<Hub>>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Response> {
    let absent = || Error::Absent(format!("section of this name of build {id}"));
    let is_name = name.len() <= MAX_SECTION && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_build_id(&id) || !is_name {
        return Err(absent());
    }
    let mut files = Vec::new();
    for kind in [FileKind::Debuginfo, FileKind::Executable] {
        // Upstream servers are asked only if the hub has no file at all.
        match hub.database.build_file(&id, &kind).await? {
            Some(file) => files.push(file),
            None if files.is_empty() => files.extend(fetch::file(&hub, &id, &kind).await?),
            None => {}
        }
    }
    let copied = sections::copy(&hub, &files, &name).await?.ok_or_else(absent)?;
    let size = copied.size;
    let (file, folder) = copied.into_parts();
    let stream = ReaderStream::with_capacity(file, 256 << 10).map(move |piece| {
        // The folder lives as long as the stream.
        let _kept = &folder;
        piece
    });
    let mut response = Body::from_stream(stream).into_response();
    let headers = response.headers_mut();
    set(headers, "content-type", "application/octet-stream");
    set(headers, "content-length", &size.to_string());
    set(headers, "x-debuginfod-size", &size.to_string());
    Ok(response)
}

/// Returns a source file of a build, from upstream servers.
///
/// # Errors
/// Fails if neither the hub nor an upstream server has it.
pub async fn source(
    State(hub): State<Arc<Hub>>,
    Path((id, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    let path = path.trim_start_matches('/');
    let is_plain = !path.is_empty()
        && path.len() <= MAX_PATH
        && !path.chars().any(char::is_control)
        && !path.split('/').any(|part| part == "." || part == "..");
    if !is_plain {
        return Err(Error::Absent(format!("source file of this path of build {id}")));
    }
    let file = find(&hub, &id, &FileKind::source(path)).await?;
    send(&hub, &file, &headers).await
}

async fn find(hub: &Arc<Hub>, id: &str, kind: &FileKind) -> Result<BuildFile> {
    let absent = || Error::Absent(format!("{} of build {id}", kind.name()));
    if !is_build_id(id) {
        return Err(Error::Absent("build of this id".to_owned()));
    }
    fetch::file(hub, id, kind).await?.ok_or_else(absent)
}

/// Sends a stored file, or the requested part of it.
async fn send(hub: &Hub, file: &BuildFile, request: &HeaderMap) -> Result<Response> {
    let key = blob(&file.sha256);
    let size = file.size.unsigned_abs();
    let tag = format!("\"{}\"", file.sha256);
    let is_same = |name| {
        let value = request.get(name);
        value.is_none_or(|value: &HeaderValue| value.as_bytes() == tag.as_bytes())
    };
    let wanted = request
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok())
        .filter(|_| is_same(header::IF_RANGE));
    let range = match wanted.map(|text| parse_range(text, size)) {
        None | Some(Requested::Whole) => None,
        Some(Requested::Part(range)) => Some(range),
        Some(Requested::Outside) => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            set(
                response.headers_mut(),
                "content-range",
                &format!("bytes */{size}"),
            );
            return Ok(response);
        }
    };
    let part = range.clone().unwrap_or(0..size);
    let body = if part.is_empty() {
        Body::empty()
    } else {
        let stream = hub.objects.stream_range(&key, part.clone()).await?;
        Body::from_stream(stream.ok_or_else(|| Error::MissingObject {
            row: format!("the {} of build {}", file.kind.name(), file.build_id),
            key: key.clone(),
        })?)
    };
    let mut response = body.into_response();
    if let Some(range) = &range {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let text = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
        set(response.headers_mut(), "content-range", &text);
    }
    let headers = response.headers_mut();
    set(headers, "content-type", "application/octet-stream");
    set(headers, "content-length", &(part.end - part.start).to_string());
    set(headers, "accept-ranges", "bytes");
    set(headers, "etag", &tag);
    set(headers, "x-debuginfod-size", &size.to_string());
    set(headers, "x-debuginfod-file", &file.name);
    Ok(response)
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The part of a file that a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requested {
    Whole,
    Part(Range<u64>),
    Outside,
}

/// Reads a `Range` header. Several ranges, and units other than bytes, get the whole file.
fn parse_range(text: &str, size: u64) -> Requested {
    let Some(range) = text.strip_prefix("bytes=") else {
        return Requested::Whole;
    };
    let Some((first, last)) = range.trim().split_once('-') else {
        return Requested::Whole;
    };
    let part = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) if last.is_empty() => first..size,
        (Err(_), Ok(count)) if first.is_empty() => size.saturating_sub(count)..size,
        _ => return Requested::Whole,
    };
    if part.start < part.end {
        Requested::Part(part)
    } else {
        Requested::Outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_rfc_9110() {
        for (text, wanted) in [
            ("bytes=0-499", Requested::Part(0..500)),
            ("bytes=500-", Requested::Part(500..1000)),
            ("bytes=-1", Requested::Part(999..1000)),
            ("bytes=-5000", Requested::Part(0..1000)),
            ("bytes=0-18446744073709551615", Requested::Part(0..1000)),
            ("bytes=1000-", Requested::Outside),
            ("bytes=-0", Requested::Outside),
            ("bytes=5-4", Requested::Whole),
            ("bytes=0-1,3-4", Requested::Whole),
            ("lines=0-1", Requested::Whole),
            ("bytes=", Requested::Whole),
        ] {
            assert_eq!(parse_range(text, 1000), wanted, "{text}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Requested::Outside);
    }
}
