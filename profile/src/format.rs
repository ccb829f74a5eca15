//! Formats: our recordings, and those of other tools.

pub mod firefox;
pub mod folded;
pub mod html;
pub mod jfr;
pub mod otlp;
pub mod perf_data;
pub mod perf_script;
pub mod perfetto;
pub mod pprof;
pub mod recording;
pub mod speedscope;

use crate::Result;
use crate::profile::Profile;

/// Reads a profile of a format that its bytes decide: a recording, `perf.data`, JFR, pprof with
/// gzip or without, OTLP, or folded stacks.
///
/// # Errors
///
/// Those of the format, and [`Error::Malformed`] if the format is not known.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    if perf_data::is_perf_data(bytes) {
        return perf_data::read(bytes);
    }
    if jfr::is_jfr(bytes) {
        return jfr::read(bytes);
    }
    if bytes.starts_with(&recording::HEADER) {
        return recording::read(bytes);
    }
    let is_text = |byte: &u8| !matches!(byte, 0..=8 | 14..=31);
    match bytes.iter().take(4096).all(is_text) {
        true => folded::read(bytes),
        false if otlp::is_otlp(bytes) => otlp::read(bytes),
        false => pprof::read(bytes),
    }
}
