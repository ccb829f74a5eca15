//! Functions that programs generated while they ran, and how a block stores them.
//!
//! They come later than the samples that hit them, because a program may report them late. So they
//! belong to a process and a time, and to no segment.

use super::block::TIME_UNIT;
use super::varint::{Reader, write, write_signed};
use crate::frame::StringId;
use crate::sample::UnixNanos;
use crate::table::Id;
use backtrail_pt::Pid;
use std::ops::Range;

/// A function that a program generated, as by a JIT compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFunction {
    /// The process.
    pub pid: Pid,
    /// The position in the list of the process. Later functions replace earlier ones.
    pub order: u64,
    /// The addresses.
    pub range: Range<u64>,
    /// The function was not there before this time.
    pub earliest: UnixNanos,
    /// The function was there since this time at the latest.
    pub latest: UnixNanos,
    /// The name. `None`: from now on the code at these addresses is not known.
    pub name: Option<StringId>,
    /// The lines in the order of addresses.
    pub lines: Vec<GeneratedLine>,
}

/// The line of a part of a generated function. The part ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedLine {
    /// The distance from the start of the function.
    pub offset: u64,
    /// The file.
    pub file: StringId,
    /// The line. 0: unknown.
    pub line: u32,
}

/// Appends functions to a block whose samples begin at `base`.
pub(super) fn encode(functions: &[GeneratedFunction], base: UnixNanos, out: &mut Vec<u8>) {
    write(functions.len() as u64, out);
    let mut last = 0_u64;
    for function in functions {
        write(function.pid.0.into(), out);
        write(function.order, out);
        let start = function.range.start;
        write_signed(start.wrapping_sub(last).cast_signed(), out);
        last = start;
        write(function.range.end.saturating_sub(start), out);
        // As exact as the times of samples.
        let [earliest, latest] = [function.earliest.0, function.latest.0].map(|time| time - time % TIME_UNIT);
        write_signed(latest.wrapping_sub(base.0).cast_signed(), out);
        write(latest.saturating_sub(earliest), out);
        write(function.name.map_or(0, |name| name.index() as u64 + 1), out);
        write(function.lines.len() as u64, out);
        let mut last = 0_u64;
        for line in &function.lines {
            write(line.offset.saturating_sub(last), out);
            last = line.offset;
            write(line.file.index() as u64, out);
            write(line.line.into(), out);
        }
    }
}

/// Reads the functions of a block. `strings` has the texts of its segment. `None`: malformed.
pub(super) fn decode(
    reader: &mut Reader<'_>,
    strings: &[StringId],
    base: u64,
) -> Option<Vec<GeneratedFunction>> {
    let mut functions = Vec::new();
    let mut last = 0_u64;
    for _ in 0..reader.number()? {
        let (pid, order) = (Pid(reader.small()?), reader.number()?);
        last = last.wrapping_add(reader.signed()?.cast_unsigned());
        let range = last..last.checked_add(reader.number()?)?;
        let latest = base.wrapping_add(reader.signed()?.cast_unsigned());
        let earliest = latest.checked_sub(reader.number()?)?;
        let name = match reader.number()?.checked_sub(1) {
            None => None,
            Some(index) => Some(*strings.get(usize::try_from(index).ok()?)?),
        };
        functions.push(GeneratedFunction {
            pid,
            order,
            range,
            earliest: UnixNanos(earliest),
            latest: UnixNanos(latest),
            name,
            lines: decode_lines(reader, strings)?,
        });
    }
    Some(functions)
}

fn decode_lines(reader: &mut Reader<'_>, strings: &[StringId]) -> Option<Vec<GeneratedLine>> {
    let mut lines = Vec::new();
    let mut offset = 0_u64;
    for _ in 0..reader.number()? {
        offset = offset.checked_add(reader.number()?)?;
        lines.push(GeneratedLine {
            offset,
            file: reader.entry(strings)?,
            line: reader.small()?,
        });
    }
    Some(lines)
}
