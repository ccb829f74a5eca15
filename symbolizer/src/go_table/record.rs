//! The record of a function (package `runtime` of Go, type `_func`).

use super::bytes::u32_at;
use super::header::{Format, Header};

/// The tables of values and of data that are used, by number.
const INLINED_CALLS_VALUES: usize = 2;
const INLINED_CALLS_DATA: usize = 3;

/// The record of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The offset of the name.
    pub name: u32,
    /// The offset of the files by address; 0 if there are none.
    pub file_values: u32,
    /// The offset of the lines by address; 0 if there are none.
    pub line_values: u32,
    /// The offset of the indexes of inlined calls by address; 0 if there are none.
    pub inlined_values: u32,
    /// The offset, or the address before Go 1.18, of the inlined calls.
    pub inlined_calls: Option<u64>,
    /// The first file number of the compilation unit.
    pub unit: u32,
    /// The line of the declaration; 0 if unknown.
    pub declared_line: u32,
}

impl Record {
    /// Reads the record at an offset in the records.
    pub fn read(header: &Header<'_>, offset: u32) -> Option<Self> {
        let bytes = header.records.get(offset as usize..)?;
        // The entry is an address before Go 1.18, and an offset since then.
        let start = if header.format == Format::Go116 { 8 } else { 4 };
        let word = |number: usize| u32_at(bytes, start + number * 4);
        let has_declared_line = header.format >= Format::Go120;
        let kinds = if has_declared_line { 9 } else { 8 };
        let value_tables = word(6)? as usize;
        let data_tables = usize::from(*bytes.get(start + kinds * 4 + 3)?);
        let values = start + kinds * 4 + 4;
        let data = values.checked_add(value_tables.checked_mul(4)?)?;
        let inlined_values = (INLINED_CALLS_VALUES < value_tables)
            .then(|| u32_at(bytes, values + INLINED_CALLS_VALUES * 4))
            .flatten();
        let inlined_calls = (INLINED_CALLS_DATA < data_tables)
            .then(|| data_at(header.format, bytes, data))
            .flatten();
        Some(Self {
            name: word(0)?,
            file_values: word(4)?,
            line_values: word(5)?,
            inlined_values: inlined_values.unwrap_or(0),
            inlined_calls,
            unit: word(7)?,
            declared_line: if has_declared_line { word(8)? } else { 0 },
        })
    }
}

/// Returns the place of the inlined calls, given where the list of places starts in the record.
fn data_at(format: Format, bytes: &[u8], list: usize) -> Option<u64> {
    if format == Format::Go116 {
        // Records are aligned to 8 bytes, and so is the list.
        let list = list.checked_next_multiple_of(8)?;
        let at = super::bytes::u64_at(bytes, list.checked_add(INLINED_CALLS_DATA * 8)?)?;
        return (at != 0).then_some(at);
    }
    let offset = u32_at(bytes, list.checked_add(INLINED_CALLS_DATA * 4)?)?;
    (offset != u32::MAX).then_some(u64::from(offset))
}
