//! Kinds of files that are not read, by their first bytes.

use prost::encoding::{WireType, decode_key, decode_varint};

/// The bytes that decide.
const FIRST: usize = 4096;
/// The fields of a `TracePacket` of Perfetto: `clock_snapshot`, `timestamp`,
/// `trusted_packet_sequence_id`, `interned_data` and `sequence_flags`.
const PACKET_FIELDS: [u32; 5] = [6, 8, 10, 12, 13];

/// Returns the kind of a file that no reader reads, such as `the text of perf script`. `None`: it
/// is not known, or a reader reads it.
pub(super) fn of(bytes: &[u8]) -> Option<&'static str> {
    if bytes.is_empty() {
        return Some("an empty file");
    }
    let first = bytes.get(..bytes.len().min(FIRST)).unwrap_or(bytes);
    let text = String::from_utf8_lossy(first);
    let text = text.trim_start();
    let has = |part: &str| text.contains(part);
    match text.chars().next() {
        Some('{' | '[') if has("speedscope.app") => Some("JSON of speedscope"),
        Some('{' | '[') if has("\"preprocessedProfileVersion\"") || has("\"meta\":{") => {
            Some("JSON of the Firefox Profiler")
        }
        Some('{' | '[') if has("\"traceEvents\"") || has("\"ph\":") => Some("JSON of Chrome's traces"),
        Some('{') => is_json_object(text).then_some("JSON"),
        Some('<') if has("<html") || has("<svg") || has("<!DOCTYPE") || has("<!doctype") => {
            Some("a page or an image")
        }
        _ if is_perf_script(text) => Some("the text of perf script"),
        _ if is_perfetto(bytes) => Some("a trace of Perfetto"),
        _ => None,
    }
}

/// Returns whether a text begins as a JSON object. Names of functions may begin with a brace, too.
fn is_json_object(text: &str) -> bool {
    let rest = text.trim_start_matches('{').trim_start();
    rest.starts_with('"') || rest.starts_with('}')
}

/// Returns whether a text has the first sample of `perf script`. Its line ends with the event and a
/// colon, and the frames below it begin with an address.
fn is_perf_script(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let Some(header) = lines.find(|line| !line.trim().is_empty()) else {
        return false;
    };
    // With frames, the event ends the line. Without, the address and the function follow it.
    let has_event = header
        .split_whitespace()
        .filter(|word| word.ends_with(':'))
        .count()
        >= 2;
    let frame = lines.next().unwrap_or_default();
    let address = frame.trim_start().split(' ').next().unwrap_or_default();
    let is_frame = frame.starts_with([' ', '\t']) && u64::from_str_radix(address, 16).is_ok();
    has_event && (is_frame || header.trim_end().ends_with(')'))
}

/// Returns whether the first fields are packets of Perfetto.
fn is_perfetto(mut bytes: &[u8]) -> bool {
    let mut has_packet_field = false;
    for _ in 0..4 {
        if bytes.is_empty() {
            break;
        }
        let Some((1, packet, rest)) = field(bytes) else {
            return false;
        };
        has_packet_field |= is_packet(packet);
        bytes = rest;
    }
    has_packet_field
}

/// Returns the number, content and rest of a field of bytes.
fn field(mut bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let Ok((tag, WireType::LengthDelimited)) = decode_key(&mut bytes) else {
        return None;
    };
    let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
    // The file may have been cut.
    let (content, rest) = bytes.split_at(length.min(bytes.len()));
    Some((tag, content, rest))
}

fn is_packet(mut bytes: &[u8]) -> bool {
    decode_key(&mut bytes).is_ok_and(|(tag, _)| PACKET_FIELDS.contains(&tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_script_is_no_folded_text() {
        let text = "c1-O0 21830  1689.348071:    1001001 cpu-clock: \n\tffffffff8137f320 f+0x0 (vmlinux)\n";
        assert_eq!(of(text.as_bytes()), Some("the text of perf script"));
        for text in [
            "main;f 3\n",
            "a: b: 4\nmain 1\n",
            "{lambda};f 1\n",
            "[kernel];f 1\n",
            "<main> 3\n",
        ] {
            assert_eq!(of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn json_is_named() {
        assert_eq!(of(br#"{"a": 1}"#), Some("JSON"));
        assert_eq!(of(br#" [{"ph":"B"}]"#), Some("JSON of Chrome's traces"));
    }
}
