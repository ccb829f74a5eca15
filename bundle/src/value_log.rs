//! The value log of a thread: what a replay of its instructions cannot compute.
//!
//! A thread has one file. It begins with the magic number and has segments one after the other, the
//! oldest first. All numbers are little-endian:
//!
//! ```text
//! 0    8    magic: "BTVALS", 0, format version 3
//! 8    8    the number of the segment; ascending
//! 16   4    the size of its content in bytes
//! 20   4    the size of its compressed content in bytes
//! 24   ...  the content, compressed by zstd
//! ```
//!
//! The content is that of the crate `backtrail-semantics`: the registers before the first
//! instruction, and then the log. The trace has a value ([`mark`]) where a segment begins.

use crate::{Error, Result, SharedBytes};
use std::fmt::Display;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"BTVALS\0\x03";
/// The size of a segment's header in bytes.
const HEADER: usize = 16;
/// The largest content of a segment in bytes.
pub const MAX_CONTENT: usize = 64 << 20;
/// A level of zstd that is as fast as the memory of the recorder needs.
const LEVEL: i32 = 1;

/// The number of low bits of a mark with its code, as those of heap events.
const CODE_BITS: u32 = 5;
/// The code of marks, which no heap event has.
const CODE: u64 = 31;

/// Returns the value in the trace where a segment begins. It is written while tracing is off.
///
/// # Example
/// ```
/// use backtrail_bundle::value_log::{mark, segment_of};
/// assert_eq!(segment_of(mark(7)), Some(7));
/// ```
#[must_use]
pub const fn mark(segment: u64) -> u64 {
    segment << CODE_BITS | CODE
}

/// Returns the number of the segment that begins at a value in the trace. `None`: the value is
/// another one.
#[must_use]
pub const fn segment_of(value: u64) -> Option<u64> {
    if value & ((1 << CODE_BITS) - 1) == CODE {
        Some(value >> CODE_BITS)
    } else {
        None
    }
}

/// Returns the beginning of a file.
#[must_use]
pub fn beginning() -> Vec<u8> {
    MAGIC.to_vec()
}

/// Returns a segment for a file.
///
/// # Errors
/// Fails if the content is too large, or cannot be compressed.
pub fn encode(number: u64, content: &[u8]) -> Result<Vec<u8>> {
    let too_large = || Error::Usage(format!("a segment of values has {} bytes", content.len()));
    if content.len() > MAX_CONTENT {
        return Err(too_large());
    }
    let compressed = zstd::bulk::compress(content, LEVEL)
        .map_err(|error| Error::Usage(format!("values cannot be compressed: {error}")))?;
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| too_large());
    let mut out = Vec::with_capacity(HEADER + compressed.len());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&size(content)?.to_le_bytes());
    out.extend_from_slice(&size(&compressed)?.to_le_bytes());
    out.extend_from_slice(&compressed);
    Ok(out)
}

/// The value log of a thread.
#[derive(Clone, Debug)]
pub struct ValueLog {
    bytes: SharedBytes,
    segments: Vec<Segment>,
}

/// A segment of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number.
    pub number: u64,
    /// The size of its content in bytes.
    pub size: usize,
    place: Range<usize>,
}

impl ValueLog {
    /// Parses a file. `place` names it in errors.
    ///
    /// # Errors
    /// Fails if the file is malformed. The contents are checked when they are read.
    pub fn parse(bytes: SharedBytes, place: impl Display) -> Result<Self> {
        let refuse = |problem: &str| Error::malformed(&place, problem);
        let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
            return Err(refuse(
                "this is not a value log, or it has another format version",
            ));
        };
        let mut segments: Vec<Segment> = Vec::new();
        while !rest.is_empty() {
            let cut = || refuse("a segment is cut");
            let (number, after) = rest.split_first_chunk().ok_or_else(cut)?;
            let (size, after) = after.split_first_chunk().ok_or_else(cut)?;
            let (compressed, after) = after.split_first_chunk().ok_or_else(cut)?;
            let number = u64::from_le_bytes(*number);
            let size = u32::from_le_bytes(*size) as usize;
            let compressed = u32::from_le_bytes(*compressed) as usize;
            if size > MAX_CONTENT {
                return Err(refuse("a segment is too large"));
            }
            if segments.last().is_some_and(|last| number <= last.number) {
                return Err(refuse("the segments are not in order"));
            }
            let start = bytes.len() - after.len();
            rest = after.get(compressed..).ok_or_else(cut)?;
            segments.push(Segment {
                number,
                size,
                place: start..start + compressed,
            });
        }
        Ok(Self { bytes, segments })
    }

    /// Returns the segments, the oldest first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the content of a segment.
    ///
    /// # Errors
    /// Fails if the content is malformed.
    pub fn content(&self, segment: &Segment) -> Result<Vec<u8>> {
        let place = format!("segment {} of the value log", segment.number);
        let refuse = || Error::malformed(&place, "the compressed values are malformed");
        let compressed = self.bytes.get(segment.place.clone()).ok_or_else(refuse)?;
        let content = zstd::bulk::decompress(compressed, segment.size).map_err(|_| refuse())?;
        if content.len() == segment.size {
            Ok(content)
        } else {
            Err(refuse())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(contents: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut out = beginning();
        for (number, content) in contents {
            out.extend(encode(*number, content).unwrap());
        }
        out
    }

    #[test]
    fn segments_are_read_as_written() {
        let contents = [(3, vec![1; 1000]), (4, Vec::new()), (9, vec![7])];
        let log = ValueLog::parse(file(&contents).into(), "values").unwrap();
        let read: Vec<_> = log
            .segments()
            .iter()
            .map(|segment| (segment.number, log.content(segment).unwrap()))
            .collect();
        assert_eq!(read, contents);
    }

    #[test]
    fn cut_and_unordered_files_are_refused() {
        let whole = file(&[(1, vec![5; 100]), (2, vec![6; 100])]);
        for length in 0..whole.len() {
            let cut = whole[..length].to_vec();
            let first = beginning().len() + encode(1, &[5; 100]).unwrap().len();
            let is_whole = length == 8 || length == first;
            assert_eq!(
                ValueLog::parse(cut.into(), "values").is_ok(),
                is_whole,
                "{length}"
            );
        }
        assert!(ValueLog::parse(file(&[(2, vec![]), (2, vec![])]).into(), "values").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_bounds(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut file = beginning();
            file.extend(bytes);
            if let Ok(log) = ValueLog::parse(file.into(), "values") {
                for segment in log.segments().iter().filter(|segment| segment.size < 1 << 20) {
                    let _ = log.content(segment);
                }
            }
        }
    }
}
