//! Jitdumps: files in which a program records the functions that it generates, with times.
//!
//! Source: `tools/perf/Documentation/jitdump-specification.txt` of Linux. A file has a header and
//! records in the order of time. Only dumps of this machine's byte order are read.

use crate::perf_map::{MAX_NAME, is_code};

/// The size of the header's fixed part.
pub const HEADER: usize = 40;
/// The size of a record's prefix: kind, size and time.
pub const PREFIX: usize = 16;
/// The bytes of a record after the prefix that are needed, apart from those of
/// [`RecordKind::DebugInfo`].
pub const BODY: usize = 40 + MAX_NAME;

const MAGIC: u32 = 0x4A69_5444;
const VERSION: u32 = 1;
/// `JITDUMP_FLAGS_ARCH_TIMESTAMP`.
const ARCH_TIMESTAMP: u64 = 1;

/// V8 adds the size of an ELF header to the addresses of lines, as earlier versions of perf needed
/// it. Its dumps have this value in a field that others leave 0 (`src/diagnostics/perf-jit.cc`).
const PAD_OF_V8: u32 = 0xDEAD_BEEF;
const ELF_HEADER: u64 = 0x40;

/// The header of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpHeader {
    /// The position of the first record.
    pub size: u32,
    /// Whether times are those of the processor's counter instead of `CLOCK_MONOTONIC`.
    pub has_counter_times: bool,
    /// The distance by which the addresses of lines are too high.
    pub line_shift: u64,
}

/// Parses the header of a dump. `None`: this is no dump of a known version.
#[must_use]
pub fn header(bytes: &[u8]) -> Option<DumpHeader> {
    let mut fields = Fields(bytes);
    let (magic, version, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (_machine, pad, _pid, _time) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u64()?);
    let flags = fields.u64()?;
    let is_dump = magic == MAGIC && version == VERSION && size as usize >= HEADER;
    is_dump.then_some(DumpHeader {
        size,
        has_counter_times: flags & ARCH_TIMESTAMP != 0,
        line_shift: if pad == PAD_OF_V8 { ELF_HEADER } else { 0 },
    })
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKind {
    /// A new function.
    Load,
    /// A function at another address.
    Move,
    /// The lines of the function that the next [`RecordKind::Load`] at its address adds.
    DebugInfo,
    /// The end of the dump.
    Close,
    /// A record that is not needed.
    Other,
}

/// The prefix of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPrefix {
    /// The kind.
    pub kind: RecordKind,
    /// The size of the whole record.
    pub size: u32,
    /// The time.
    pub time: u64,
}

/// Parses the prefix of a record. `None`: there are too few bytes, or the record is malformed.
#[must_use]
pub fn prefix(bytes: &[u8]) -> Option<RecordPrefix> {
    let mut fields = Fields(bytes);
    let kind = match fields.u32()? {
        0 => RecordKind::Load,
        1 => RecordKind::Move,
        2 => RecordKind::DebugInfo,
        3 => RecordKind::Close,
        _ => RecordKind::Other,
    };
    let (size, time) = (fields.u32()?, fields.u64()?);
    (size as usize >= PREFIX).then_some(RecordPrefix { kind, size, time })
}

/// A new function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
    /// The name. Its encoding is not known.
    pub name: &'a [u8],
}

/// Parses the first bytes of a [`RecordKind::Load`] after the prefix. `None`: it is malformed, or
/// the code is empty.
#[must_use]
pub fn load(body: &[u8]) -> Option<Load<'_>> {
    let mut fields = Fields(body);
    let (_pid, _tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
    let (start, size, _index) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let rest = fields.0.get(..MAX_NAME).unwrap_or(fields.0);
    let name = rest.split(|byte| *byte == 0).next()?;
    is_code(start, size).then_some(Load { start, size, name })
}

/// A function that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The first address before.
    pub from: u64,
    /// The first address from now on.
    pub to: u64,
    /// The size in bytes.
    pub size: u64,
}

/// Parses a [`RecordKind::Move`] after the prefix.
#[must_use]
pub fn moved(body: &[u8]) -> Option<Move> {
    let mut fields = Fields(body);
    let (_pid, _tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
    let (from, to, size) = (fields.u64()?, fields.u64()?, fields.u64()?);
    (is_code(from, size) && is_code(to, size)).then_some(Move { from, to, size })
}

/// Returns the address of the function that a [`RecordKind::DebugInfo`] describes.
#[must_use]
pub fn debug_address(body: &[u8]) -> Option<u64> {
    Fields(body).u64()
}

/// A line of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugLine<'a> {
    /// The first address of the line's code.
    pub address: u64,
    /// The line. 0: unknown.
    pub line: u32,
    /// The file.
    pub file: &'a [u8],
}

/// Returns the lines of a [`RecordKind::DebugInfo`] after the prefix. They end where the record is
/// malformed.
pub fn debug_lines(body: &[u8]) -> impl Iterator<Item = DebugLine<'_>> {
    /// A file with this name is that of the line before.
    const SAME: &[u8] = &[0xff];
    let mut fields = Fields(body);
    let count = fields.u64().and_then(|_| fields.u64()).unwrap_or(0);
    let mut last: &[u8] = &[];
    (0..count).map_while(move |_| {
        let (address, line, _discriminator) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let end = fields.0.iter().position(|byte| *byte == 0)?;
        let (file, rest) = fields.0.split_at_checked(end)?;
        fields.0 = rest.get(1..)?;
        if file != SAME {
            last = file;
        }
        Some(DebugLine {
            address,
            line,
            file: last,
        })
    })
}

/// The fields of a record in the order of the file.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(small: &[u32], large: &[u64]) -> Vec<u8> {
        let small = small.iter().flat_map(|field| field.to_ne_bytes());
        small
            .chain(large.iter().flat_map(|field| field.to_ne_bytes()))
            .collect()
    }

    #[test]
    fn header_has_size_and_clock() {
        let of = |fields: [u32; 6], flags: u64| bytes(&fields, &[5, flags]);
        let fields = [MAGIC, 1, 48, 62, 0, 7];
        let read = header(&of(fields, 1)).unwrap();
        assert_eq!((read.size, read.has_counter_times), (48, true));
        let plain = header(&of(fields, 0)).unwrap();
        assert!(!plain.has_counter_times && plain.line_shift == 0);
        let of_v8 = [MAGIC, 1, 40, 62, PAD_OF_V8, 7];
        assert_eq!(header(&of(of_v8, 0)).unwrap().line_shift, 0x40);
        for (at, value) in [(0, 1), (1, 2), (2, 39)] {
            let mut other = fields;
            other[at] = value;
            assert_eq!(header(&of(other, 0)), None);
        }
        let whole = of(fields, 0);
        (0..whole.len()).for_each(|length| assert_eq!(header(&whole[..length]), None));
    }

    #[test]
    fn records_have_their_fields() {
        let read = prefix(&bytes(&[1, 64], &[9])).unwrap();
        assert_eq!((read.kind, read.size, read.time), (RecordKind::Move, 64, 9));
        assert_eq!(prefix(&bytes(&[1, 15], &[9])), None);
        let mut body = bytes(&[1, 2], &[0x10, 0x10, 0x20, 3]);
        body.extend(b"work\0\x90\x90");
        let read = load(&body).unwrap();
        assert_eq!((read.start, read.size, read.name), (0x10, 0x20, &b"work"[..]));
        let read = moved(&bytes(&[1, 2], &[0, 0x10, 0x30, 0x20, 3])).unwrap();
        assert_eq!((read.from, read.to, read.size), (0x10, 0x30, 0x20));
        assert_eq!(moved(&bytes(&[1, 2], &[0, 0x10, u64::MAX, 0x20, 3])), None);
        assert_eq!(load(&bytes(&[1, 2], &[0x10, 0x10, 0, 3])), None);
    }

    #[test]
    fn lines_may_repeat_the_file() {
        let mut body = bytes(&[], &[0x10, 3]);
        for (address, line, file) in [(0x10, 5, &b"a.js\0"[..]), (0x14, 6, b"\xff\0"), (0x18, 7, b"b")] {
            body.extend(bytes(&[], &[address]));
            body.extend(bytes(&[line, 0], &[]));
            body.extend(file);
        }
        let lines: Vec<_> = debug_lines(&body).collect();
        // The last name has no end.
        let expected = [(0x10, 5), (0x14, 6)].map(|(address, line)| DebugLine {
            address,
            line,
            file: b"a.js",
        });
        assert_eq!(lines, expected);
        assert_eq!(debug_address(&body), Some(0x10));
    }
}
