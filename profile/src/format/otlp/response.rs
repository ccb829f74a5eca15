//! The answer of a collector to an export request.

use crate::{Error, Result};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message as _;

/// The answer of a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportResponse {
    /// The number of profiles that the collector did not take.
    pub rejected: u64,
    /// The reason, or a warning.
    pub message: String,
}

/// Parses an answer with status 200.
///
/// # Errors
///
/// [`Error::Malformed`] if it is not the message `ExportProfilesServiceResponse`.
pub fn read_response(bytes: &[u8]) -> Result<ExportResponse> {
    let message = ExportProfilesServiceResponse::decode(bytes).map_err(|error| Error::Malformed {
        format: "OTLP answer",
        problem: error.to_string(),
    })?;
    let partial = message.partial_success.unwrap_or_default();
    Ok(ExportResponse {
        rejected: partial.rejected_profiles.max(0).cast_unsigned(),
        message: partial.error_message,
    })
}
