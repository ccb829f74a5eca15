//! Bodies of pushes, whose memory is bounded: a request waits before it is received or unpacked.

use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::blocking;
use crate::profiles::body_memory::{BodyMemory, shrink};
use axum::body::Bytes;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::MultiGzDecoder;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{error::Elapsed, timeout};

/// The largest body of a request in bytes.
pub const REQUEST_LIMIT: usize = 32 << 20;
/// The longest time in which a body is received. Others wait for its memory.
const LONGEST: Duration = Duration::from_secs(120);
/// The largest body after decompression.
const UNPACKED_LIMIT: u64 = 128 << 20;

/// A body without the encoding of the transfer. Its memory is free again with the value.
#[derive(Debug)]
pub struct Body {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The memory that is counted for them.
    pub memory: OwnedSemaphorePermit,
}

impl FromRequest<Arc<Hub>> for Body {
    type Rejection = Error;

    async fn from_request(request: Request, hub: &Arc<Hub>) -> Result<Self> {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let length = length.unwrap_or(REQUEST_LIMIT).min(REQUEST_LIMIT);
        let memory = hub.bodies.received(length).await?;
        let headers = request.headers().clone();
        let late = |_: Elapsed| Error::Invalid(format!("the request took more than {} s", LONGEST.as_secs()));
        if media_type(&headers) == "multipart/form-data" {
            let bytes = timeout(LONGEST, form_part(request)).await.map_err(late)??;
            return Ok(Self { bytes, memory });
        }
        let read = timeout(LONGEST, Bytes::from_request(request, hub))
            .await
            .map_err(late)?;
        let body = read.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Error::TooLarge(format!(
                    "a request has at most {} MiB; send shorter profiles",
                    REQUEST_LIMIT >> 20
                ))
            } else {
                Error::Invalid("the request ended early".to_owned())
            }
        })?;
        if is_packed(&headers)? {
            return unpack(&hub.bodies, body, memory).await;
        }
        Ok(Self {
            bytes: body.into(),
            memory,
        })
    }
}

/// Returns whether the body has the encoding gzip.
fn is_packed(headers: &HeaderMap) -> Result<bool> {
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("identity")
        .trim()
        .to_ascii_lowercase();
    match encoding.as_str() {
        "identity" => Ok(false),
        // `x-gzip` is the same (RFC 9110, section 8.4.1.3).
        "gzip" | "x-gzip" => Ok(true),
        other => Err(Error::Invalid(format!(
            "the content encoding \"{other}\" is unknown; use gzip or none"
        ))),
    }
}

async fn unpack(memory: &BodyMemory, body: Bytes, received: OwnedSemaphorePermit) -> Result<Body> {
    let mut unpacked = memory.unpacked(UNPACKED_LIMIT as usize).await?;
    let bytes = blocking(move || {
        let bytes = gunzip(&body);
        drop((body, received));
        bytes
    });
    let bytes = bytes.await?;
    shrink(&mut unpacked, bytes.len());
    Ok(Body {
        bytes,
        memory: unpacked,
    })
}

fn gunzip(body: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(body)
        .take(UNPACKED_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::Invalid(format!("the request is no gzip stream: {error}")))?;
    if bytes.len() as u64 > UNPACKED_LIMIT {
        return Err(Error::TooLarge(format!(
            "the request has more than {} MiB when unpacked",
            UNPACKED_LIMIT >> 20
        )));
    }
    Ok(bytes)
}

/// Returns the part `profile` or `jfr` of a form.
async fn form_part(request: Request) -> Result<Vec<u8>> {
    let malformed =
        |reason: &dyn std::fmt::Display| Error::Invalid(format!("the form is malformed: {reason}"));
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|error| malformed(&error))?;
    while let Some(part) = form.next_field().await.map_err(|error| malformed(&error))? {
        if matches!(part.name(), Some("profile" | "jfr")) {
            let bytes = part.bytes().await.map_err(|error| malformed(&error))?;
            return Ok(bytes.to_vec());
        }
    }
    Err(Error::Invalid(
        "the form has neither the part `profile` nor the part `jfr`".to_owned(),
    ))
}

/// Returns the media type without its parameters.
pub fn media_type(headers: &HeaderMap) -> &str {
    let media = headers.get(header::CONTENT_TYPE);
    let media = media.and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn encodings_have_no_case() {
        let read = |encoding: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            is_packed(&headers)
        };
        for encoding in ["gzip", "GZIP", "x-gzip"] {
            assert!(read(encoding).unwrap());
        }
        assert!(!read("Identity").unwrap());
        assert!(read("br").is_err());
    }

    #[tokio::test]
    async fn packed_bodies_are_unpacked_or_refused() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"main 1\n").unwrap();
        let memory = BodyMemory::default();
        let packed = Bytes::from(gzip.finish().unwrap());
        let received = memory.received(packed.len()).await.unwrap();
        let body = unpack(&memory, packed, received).await.unwrap();
        assert_eq!((&*body.bytes, body.memory.num_permits()), (&b"main 1\n"[..], 1));
        let received = memory.received(10).await.unwrap();
        let refused = unpack(&memory, Bytes::from_static(b"no gzip"), received).await;
        assert!(refused.unwrap_err().to_string().contains("no gzip stream"));
    }
}
