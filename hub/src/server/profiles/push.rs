//! Pushes of profiles: our agent's, those of OpenTelemetry and those of Pyroscope's clients.

use super::body::{Body, media_type};
use crate::error::{Error, Result};
use crate::hub::{Hub, READINGS};
use crate::objects::blocking;
use crate::profiles::push::{PushedProfile, pyroscope};
use crate::profiles::read_push::ReadPush;
use crate::profiles::sample_times::Arrival;
use crate::profiles::{read, selection};
use crate::server::api::json::Parameters;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use backtrail_store::Origin;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

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
    Body { bytes, memory }: Body,
) -> Result<Response> {
    let pushed = PushedProfile {
        labels: selection::labels(&parameters.labels)?,
        bytes,
        ..PushedProfile::default()
    };
    let stored = store(&hub, vec![pushed], parameters.origin(), memory).await?;
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
    store_otlp(&hub, body.bytes, body.memory).await?;
    // The empty message: all profiles were accepted.
    Ok(message("application/x-protobuf"))
}

/// Stores profiles of an OTLP message, which may have none.
///
/// # Errors
/// Fails as [`take_otlp`].
pub(super) async fn store_otlp(hub: &Arc<Hub>, bytes: Vec<u8>, memory: OwnedSemaphorePermit) -> Result<()> {
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
    store(hub, vec![pushed], Origin::default(), memory)
        .await
        .map(drop)
}

/// Stores a profile of `POST /ingest`. The body is the profile, or a form with the part `profile`.
///
/// # Errors
/// Fails if a parameter or the profile is malformed, or the store fails.
pub async fn take_ingest(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<pyroscope::IngestParameters>,
    Body { bytes, memory }: Body,
) -> Result<StatusCode> {
    let pushed = pyroscope::ingested(&parameters, bytes)?;
    store(&hub, vec![pushed], Origin::default(), memory).await?;
    Ok(StatusCode::OK)
}

/// Stores profiles of `PusherService/Push`, as a unary call of the Connect protocol.
///
/// # Errors
/// Fails if the message or a profile is malformed, or the store fails.
pub async fn take_push(State(hub): State<Arc<Hub>>, headers: HeaderMap, body: Body) -> Result<Response> {
    expect_type(&headers, &["application/proto", "application/x-protobuf"])?;
    let Body { bytes, memory } = body;
    let pushed = pyroscope::read(&bytes)?;
    drop(bytes);
    store(&hub, pushed, Origin::default(), memory).await?;
    Ok(message("application/proto"))
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

/// Reads and stores profiles. The work of reading is bounded, so that memory is. `body` is the
/// memory of their bytes, which are not needed after that.
pub(super) async fn store(
    hub: &Arc<Hub>,
    pushed: Vec<PushedProfile>,
    origin: Origin,
    body: OwnedSemaphorePermit,
) -> Result<Stored> {
    let arrival = Arrival::now(hub.config.profiles.days);
    let bytes: usize = pushed.iter().map(|one| unpacked_size(&one.bytes)).sum();
    let readings = if bytes > LARGE { READINGS } else { 1 };
    let permit = hub.reading.clone().acquire_many_owned(readings).await;
    let permit = permit.map_err(|_| Error::Ending)?;
    let pushes = blocking(move || {
        let pushes = read_all(&pushed, &origin, arrival);
        drop((pushed, body));
        pushes
    });
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

/// Returns the size of a profile. A packed one ends with its size (RFC 1952, section 2.3.1).
fn unpacked_size(bytes: &[u8]) -> usize {
    match bytes.last_chunk::<4>() {
        Some(size) if bytes.starts_with(&[0x1f, 0x8b]) => bytes.len().max(u32::from_le_bytes(*size) as usize),
        _ => bytes.len(),
    }
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
