//! Pushes of profiles: our agent's, those of OpenTelemetry and those of Pyroscope's clients.

use crate::error::{Error, Result};
use crate::hub::{Hub, READINGS};
use crate::objects::blocking;
use crate::profiles::push::{PushedProfile, pyroscope};
use crate::profiles::read_push::ReadPush;
use crate::profiles::sample_times::Arrival;
use crate::profiles::{read, selection};
use crate::server::api::json::Parameters;
use axum::body::Bytes;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use backtrail_store::Origin;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use std::io::Read;
use std::sync::Arc;

/// The largest body of a request in bytes.
pub const REQUEST_LIMIT: usize = 32 << 20;
/// The largest body after decompression.
const UNPACKED_LIMIT: u64 = 128 << 20;

/// The bytes of a request from which on it is read alone.
const LARGE: usize = 4 << 20;
/// The most memory of the profiles of a request in bytes.
const MOST_READ: u64 = 512 << 20;

/// The origin of all samples of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OriginParameters {
    service: String,
    host: String,
    build: String,
    region: String,
    language: String,
    /// Labels of all samples as `key=value`, separated by commas.
    labels: String,
}

impl OriginParameters {
    fn origin(self) -> Origin {
        Origin {
            service: self.service.into(),
            host: self.host.into(),
            build: self.build.into(),
            region: self.region.into(),
            language: self.language.into(),
        }
    }
}

/// Stores a profile in any format that Backtrail reads.
///
/// # Errors
/// Fails if the profile is malformed, or the store fails.
pub async fn take(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<OriginParameters>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let bytes = unpacked(&headers, body).await?;
    let pushed = PushedProfile {
        labels: selection::labels(&parameters.labels)?,
        bytes,
        ..PushedProfile::default()
    };
    let stored = store(&hub, vec![pushed], parameters.origin()).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if stored.has_moved {
        let headers = response.headers_mut();
        headers.insert(NOTE_HEADER, HeaderValue::from_static(MOVED_NOTE));
    }
    Ok(response)
}

/// Stores profiles of an OTLP request.
///
/// # Errors
/// Fails if the request is no protobuf message of OTLP, or the store fails.
pub async fn take_otlp(State(hub): State<Arc<Hub>>, headers: HeaderMap, body: Body) -> Result<Response> {
    expect_type(&headers, &["application/x-protobuf", "application/protobuf"])?;
    let bytes = unpacked(&headers, body).await?;
    store_otlp(&hub, bytes).await?;
    // The empty message: all profiles were accepted.
    Ok(message("application/x-protobuf"))
}

/// Stores profiles of an OTLP message, which may have none.
///
/// # Errors
/// Fails as [`take_otlp`].
pub(super) async fn store_otlp(hub: &Arc<Hub>, bytes: Vec<u8>) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    if !backtrail_profile::format::otlp::is_otlp(&bytes) {
        return Err(Error::Invalid(
            "the message is no request of OTLP profiles, version v1development".to_owned(),
        ));
    }
    let pushed = PushedProfile {
        bytes,
        may_be_empty: true,
        ..PushedProfile::default()
    };
    store(hub, vec![pushed], Origin::default()).await.map(drop)
}

/// Stores a profile of `POST /ingest`. The body is the profile, or a form with the part `profile`.
///
/// # Errors
/// Fails if a parameter or the profile is malformed, or the store fails.
pub async fn take_ingest(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<pyroscope::IngestParameters>,
    request: Request,
) -> Result<StatusCode> {
    let headers = request.headers().clone();
    let bytes = match media_type(&headers) {
        "multipart/form-data" => form_part(request).await?,
        _ => unpacked(&headers, Body::from_request(request, &()).await?).await?,
    };
    let pushed = pyroscope::ingested(&parameters, bytes)?;
    store(&hub, vec![pushed], Origin::default()).await?;
    Ok(StatusCode::OK)
}

/// Stores profiles of `PusherService/Push`, as a unary call of the Connect protocol.
///
/// # Errors
/// Fails if the message or a profile is malformed, or the store fails.
pub async fn take_push(State(hub): State<Arc<Hub>>, headers: HeaderMap, body: Body) -> Result<Response> {
    expect_type(&headers, &["application/proto", "application/x-protobuf"])?;
    let bytes = unpacked(&headers, body).await?;
    let pushed = pyroscope::read(&bytes)?;
    store(&hub, pushed, Origin::default()).await?;
    Ok(message("application/proto"))
}

/// The body of a request. One that is too large is refused in a sentence.
pub struct Body(Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Error::TooLarge(format!(
                    "a request has at most {} MiB; send shorter profiles",
                    REQUEST_LIMIT >> 20
                ))
            } else {
                Error::Invalid("the request ended early".to_owned())
            }
        })
    }
}

/// The header of a note about a profile that was stored.
const NOTE_HEADER: &str = "backtrail-note";
/// The note about times from boot.
const MOVED_NOTE: &str = "the times of the samples count from boot; the profile ends at its arrival";

/// The profiles of a request, which are stored.
pub(super) struct Stored {
    /// Whether samples without a time of day have times by the arrival.
    pub(super) has_moved: bool,
}

/// Reads and stores profiles. The work of reading is bounded, so that memory is.
pub(super) async fn store(hub: &Arc<Hub>, pushed: Vec<PushedProfile>, origin: Origin) -> Result<Stored> {
    let arrival = Arrival::now(hub.config.profiles.days);
    let bytes: usize = pushed.iter().map(|one| one.bytes.len()).sum();
    let readings = if bytes > LARGE { READINGS } else { 1 };
    let permit = hub.reading.clone().acquire_many_owned(readings).await;
    let permit = permit.map_err(|_| Error::Ending)?;
    let pushes = blocking(move || read_all(&pushed, &origin, arrival));
    let pushes = pushes.await?;
    let has_moved = pushes.iter().any(|push| push.is_moved);
    // The next push is read while this one waits for its commit, which several pushes share.
    let memory = hub.intake.reserve(&pushes).await?;
    drop(permit);
    let stored = pushes.into_iter().map(|push| hub.intake.store(push));
    futures_util::future::try_join_all(stored).await?;
    drop(memory);
    Ok(Stored { has_moved })
}

fn read_all(pushed: &[PushedProfile], origin: &Origin, arrival: Arrival) -> Result<Vec<ReadPush>> {
    let mut pushes = Vec::new();
    let mut kibibytes = 0;
    for one in pushed {
        let push = read::read(one, origin, arrival)?;
        kibibytes += u64::from(push.kibibytes());
        if kibibytes > MOST_READ >> 10 {
            return Err(Error::TooLarge(format!(
                "the profiles of the request take more than {} MiB of memory; send fewer at once, or shorter ones",
                MOST_READ >> 20
            )));
        }
        pushes.push(push);
    }
    Ok(pushes)
}

/// Returns the part `profile` of a form.
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

/// Returns the body without the encoding of the transfer.
async fn unpacked(headers: &HeaderMap, Body(body): Body) -> Result<Vec<u8>> {
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("identity")
        .trim()
        .to_ascii_lowercase();
    match encoding.as_str() {
        "identity" => Ok(body.into()),
        // `x-gzip` is the same (RFC 9110, section 8.4.1.3).
        "gzip" | "x-gzip" => blocking(move || gunzip(&body)).await,
        other => Err(Error::Invalid(format!(
            "the content encoding \"{other}\" is unknown; use gzip or none"
        ))),
    }
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

fn media_type(headers: &HeaderMap) -> &str {
    let media = headers.get(header::CONTENT_TYPE);
    let media = media.and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim()
}

fn expect_type(headers: &HeaderMap, expected: &[&str]) -> Result<()> {
    let media = media_type(headers);
    if expected.contains(&media) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the content type \"{}\" is not read here; send protobuf as {}",
        media.chars().take(100).collect::<String>(),
        expected.first().unwrap_or(&"")
    )))
}

/// Returns an empty protobuf message.
fn message(media: &'static str) -> Response {
    let media = HeaderValue::from_static(media);
    ([(header::CONTENT_TYPE, media)], Bytes::new()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[tokio::test]
    async fn encodings_have_no_case() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"main 1\n").unwrap();
        let packed = Bytes::from(gzip.finish().unwrap());
        let read = async |encoding: &'static str, body: Bytes| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            unpacked(&headers, Body(body)).await
        };
        for encoding in ["gzip", "GZIP", "x-gzip"] {
            assert_eq!(read(encoding, packed.clone()).await.unwrap(), b"main 1\n");
        }
        let plain = Bytes::from_static(b"main 1\n");
        assert_eq!(read("Identity", plain.clone()).await.unwrap(), b"main 1\n");
        assert!(read("br", plain).await.is_err());
    }
}
