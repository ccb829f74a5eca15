//! Formats: our recordings, and those of other tools.

pub mod decoded_size;
pub mod firefox;
pub mod folded;
pub mod html;
pub mod jfr;
mod other_kind;
pub mod otlp;
pub mod perf_data;
pub mod perf_script;
pub mod perfetto;
pub mod pprof;
pub mod recording;
pub mod speedscope;

use crate::profile::Profile;
use crate::{Error, ReadLimits, Result};

/// Reads a profile of a format that its bytes decide: a recording, `perf.data`, JFR, pprof with
/// gzip or without, OTLP, or folded stacks.
///
/// # Errors
///
/// Those of the format, and [`Error::Malformed`] if the format is not known.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    read_within(bytes, &ReadLimits::FILE)
}

/// Reads a profile within limits. Recordings and `perf.data` have a byte or more for each part of
/// their profile, so that the size of the input is their limit.
///
/// # Errors
///
/// As [`read`], and those of the limits.
pub fn read_within(bytes: &[u8], limits: &ReadLimits) -> Result<Profile> {
    if perf_data::is_perf_data(bytes) {
        return perf_data::read(bytes);
    }
    if jfr::is_jfr(bytes) {
        return jfr::read_within(bytes, limits);
    }
    if bytes.starts_with(&recording::HEADER) {
        return recording::read(bytes);
    }
    let unpacked = &*pprof::unpacked(bytes, limits)?;
    let is_packed = !std::ptr::eq(unpacked, bytes);
    if let Some(kind) = other_kind::of(unpacked) {
        return Err(unknown(format!(
            "this is {kind}, which is not read; give a recording, perf.data, JFR, pprof, OTLP or folded stacks"
        )));
    }
    let is_text = |byte: &u8| !matches!(byte, 0..=8 | 14..=31);
    match unpacked.iter().take(4096).all(is_text) {
        true => folded::read_within(unpacked, limits),
        false if otlp::is_otlp(unpacked) => otlp::read_within(unpacked, limits),
        // A packed profile without events has no types that show what it is.
        false if is_packed || pprof::is_pprof(unpacked) => pprof::read_within(unpacked, limits),
        false => Err(unknown(
            "these bytes are neither a pprof nor an OTLP profile; is the file damaged?".to_owned(),
        )),
    }
}

fn unknown(problem: String) -> Error {
    Error::Malformed {
        format: "profile",
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn other_messages_are_no_empty_profiles() {
        // A message with one field of bytes, and one that ends too early.
        for bytes in [&[0x0a, 3, 1, 2, 3][..], &[0x0a, 200, 1, 0], &[0x22, 1, 0]] {
            let text = refusal(bytes);
            assert!(text.contains("neither a pprof nor an OTLP profile"), "{text}");
        }
        assert!(refusal(b"").contains("an empty file"));
    }

    #[test]
    fn folded_stacks_may_be_packed() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, b"\xef\xbb\xbfmain;f 3\n").unwrap();
        let profile = read(&packed.finish().unwrap()).unwrap();
        let names = profile
            .functions
            .iter()
            .map(|(_, function)| profile.text(function.name));
        assert_eq!(names.collect::<Vec<_>>(), ["main", "f"]);
    }

    #[test]
    fn packed_profile_without_events_is_read() {
        let mut written = Vec::new();
        pprof::write(&Profile::default(), &mut written).unwrap();
        assert!(read(&written).unwrap().samples.is_empty());
    }

    #[test]
    fn written_profiles_of_other_tools_are_named() {
        let profile = folded::read(&b"main;f 3\n"[..]).unwrap();
        let functions = crate::FunctionProfile::new(&profile).unwrap();
        let event = profile.events.iter().next().unwrap().0;
        let (mut speedscope, mut firefox, mut perfetto) = (Vec::new(), Vec::new(), Vec::new());
        speedscope::write(&profile, &functions, "test", &mut speedscope).unwrap();
        firefox::write(&profile, &functions, event, "test", &mut firefox).unwrap();
        perfetto::write(&profile, &mut perfetto).unwrap();
        assert!(refusal(&speedscope).contains("JSON of speedscope"));
        assert!(refusal(&firefox).contains("JSON of the Firefox Profiler"));
        assert!(refusal(&perfetto).contains("Perfetto"));
    }
}
