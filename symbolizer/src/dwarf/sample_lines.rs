//! The lines and discriminators of a line program as compilers read them in sample profiles.
//!
//! Of several rows at one address, the last one counts here, as in LLVM's
//! `DWARFDebugLine::LineTable`. Debuggers want another one ([`super::lines`]).

use super::line_row::is_canonical;
use super::sections::Slice;
use crate::code::CodeRanges;
use gimli::IncompleteLineProgram;

/// A row with the line and the discriminator of the code from its address to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleRow {
    address: u64,
    /// The line; 0 if there is none.
    pub line: u32,
    /// `DW_LNS_set_discriminator`.
    pub discriminator: u32,
    is_end: bool,
}

/// The rows of one line program, by address.
#[derive(Default)]
pub(crate) struct SampleLines {
    rows: Vec<SampleRow>,
}

impl SampleLines {
    /// Reads a line program, at most `most` rows. Sequences that do not start in code are omitted.
    pub fn new(program: IncompleteLineProgram<Slice>, code: &CodeRanges, most: usize) -> Self {
        let mut rows: Vec<SampleRow> = Vec::new();
        let mut program = program.rows();
        let mut first = 0;
        while let Ok(Some((_, row))) = program.next_row() {
            if rows.len() >= most || !is_canonical(row.address()) {
                break;
            }
            rows.push(SampleRow {
                address: row.address(),
                line: row.line().map_or(0, |line| line.get().try_into().unwrap_or(0)),
                discriminator: row.discriminator().try_into().unwrap_or(0),
                is_end: row.end_sequence(),
            });
            if row.end_sequence() {
                let in_code = rows.get(first).is_some_and(|row| code.contains(row.address));
                if !in_code {
                    rows.truncate(first);
                }
                first = rows.len();
            }
        }
        rows.truncate(first);
        // The sort keeps the order of rows with one address. The end of a sequence comes before the
        // start of the next one.
        rows.sort_by_key(|row| (row.address, !row.is_end));
        Self { rows }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the row that covers an address.
    pub fn row_at(&self, at: u64) -> Option<SampleRow> {
        let next = self.rows.partition_point(|row| row.address <= at);
        let row = self.rows.get(next.checked_sub(1)?)?;
        (!row.is_end).then_some(*row)
    }
}
