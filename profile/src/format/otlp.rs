//! OTLP profiles of OpenTelemetry, version `v1development`, as protobuf.
//!
//! Source: `opentelemetry/proto/profiles/v1development/profiles.proto` of opentelemetry-proto, and
//! the semantic conventions for the names of attributes.

mod read;
mod response;
mod shape;
mod tables;
mod write;

pub use read::{is_otlp, read, read_within};
pub use response::{ExportResponse, read_response};
pub use write::write;

use crate::Error;

/// Attributes of samples and mappings.
const PID: &str = "process.pid";
const PROCESS: &str = "process.executable.name";
const TID: &str = "thread.id";
const THREAD: &str = "thread.name";
const CPU: &str = "cpu.logical_number";
const BUILD_ID: &str = "process.executable.build_id.gnu";
const FILE_HASH: &str = "process.executable.build_id.htlhash";
/// Labels that stand for a link.
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";

fn malformed(problem: impl Into<String>) -> Error {
    Error::Malformed {
        format: "OTLP",
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests;
