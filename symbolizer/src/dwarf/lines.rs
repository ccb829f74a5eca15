//! Line tables (DWARF 5, section 6.2), one for each line program, computed on demand.

use super::budget::Budget;
use super::line_row::{Row, is_canonical};
use super::paths::{self, MAX_PATH};
use super::sample_lines::SampleLines;
use super::sections::{Dwarf, Slice};
use super::unit::Unit;
use crate::LineRow;
use crate::code::CodeRanges;
use crate::code_part::{FileNumber, PartRow};
use crate::range_map::RangeMap;
use backtrail_pt::Svma;
use gimli::{AttributeValue, DebugLine, DebugLineOffset, IncompleteLineProgram, LineProgramHeader};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The line program of one or more units.
pub(crate) struct LineProgram<'d> {
    section: &'d [u8],
    address_size: u8,
    comp_dir: Option<Slice<'d>>,
    comp_name: Option<Slice<'d>>,
    files: OnceLock<Vec<Arc<str>>>,
    table: OnceLock<LineTable>,
    sample_lines: OnceLock<SampleLines>,
}

/// The rows of one line program.
pub(crate) struct LineTable {
    /// The rows by sequence, and by address in each sequence. Of several rows at one address, the
    /// last one represents it.
    rows: Vec<Row>,
    sequences: Vec<Sequence>,
    map: RangeMap,
}

struct Sequence {
    range: Range<u64>,
    /// Indexes into `rows`.
    rows: Range<usize>,
}

/// The most rows of one program. A genuine program has a row for a few bytes of code, so this
/// covers 16 MiB of code in one unit. At 16 bytes each, they take 64 MiB.
const MAX_ROWS: u64 = 1 << 22;
/// The most rows of all programs of a file that are computed: 256 MiB.
pub(crate) const MAX_ROWS_OF_FILE: u64 = 1 << 24;
/// The most rows kept at one address. Compilers write two or three, one for each line without code.
const MAX_AT_ADDRESS: usize = 16;

impl<'d> LineProgram<'d> {
    /// Parses the program at the start of `section`, which ends where the next program starts.
    pub fn new(section: &'d [u8], unit: &Unit<'d>) -> Self {
        Self {
            section,
            address_size: unit.gimli.header.address_size(),
            comp_dir: unit.gimli.comp_dir,
            comp_name: unit.gimli.name,
            files: OnceLock::new(),
            table: OnceLock::new(),
            sample_lines: OnceLock::new(),
        }
    }

    fn parse(&self) -> Option<IncompleteLineProgram<Slice<'d>>> {
        let section = DebugLine::new(self.section, gimli::LittleEndian);
        section
            .program(
                DebugLineOffset(0),
                self.address_size,
                self.comp_dir,
                self.comp_name,
            )
            .ok()
    }

    /// Returns the paths by file number. In DWARF 5, numbers start at 0. Before, 0 is the unit's
    /// own file.
    pub fn files(&self, dwarf: &Dwarf<'d>, unit: &gimli::Unit<Slice<'d>>, budget: &Budget) -> &[Arc<str>] {
        self.files.get_or_init(|| {
            let Some(program) = self.parse() else {
                return Vec::new();
            };
            let header = program.header();
            let first = u64::from(header.version() <= 4);
            let numbers = 0..header.file_names().len() as u64 + first;
            numbers
                .map(|number| {
                    path(dwarf, unit, header, number, budget)
                        .unwrap_or_default()
                        .into()
                })
                .collect()
        })
    }

    /// Returns the MD5 of the file with this number, if the program has one (DWARF 5).
    pub fn md5(&self, number: u64) -> Option<[u8; 16]> {
        let program = self.parse()?;
        let header = program.header();
        let file = header.file(number).filter(|_| header.file_has_md5())?;
        Some(*file.md5()).filter(|md5| *md5 != [0; 16])
    }

    /// Returns the rows, at most as many as the budget `rows` allows. Sequences that do not start
    /// in code are omitted.
    pub fn table(&self, code: &CodeRanges, rows: &Budget) -> &LineTable {
        self.table.get_or_init(|| {
            let Some(program) = self.parse() else {
                return LineTable::empty();
            };
            let table = LineTable::new(program, code, rows.left().min(MAX_ROWS) as usize);
            let _ = rows.spend(table.rows.len());
            table
        })
    }

    /// Returns the rows without storing them. A reader of the whole file needs each table once.
    pub fn read_table(&self, code: &CodeRanges) -> LineTable {
        self.parse().map_or_else(LineTable::empty, |program| {
            LineTable::new(program, code, MAX_ROWS as usize)
        })
    }

    /// Returns the rows with discriminators, at most as many as the budget `rows` allows.
    pub fn sample_lines(&self, code: &CodeRanges, rows: &Budget) -> &SampleLines {
        self.sample_lines.get_or_init(|| {
            let Some(program) = self.parse() else {
                return SampleLines::default();
            };
            let lines = SampleLines::new(program, code, rows.left().min(MAX_ROWS) as usize);
            let _ = rows.spend(lines.len());
            lines
        })
    }
}

/// Returns the path of a file in the line table, joined with the compilation directory.
fn path<'d>(
    dwarf: &Dwarf<'d>,
    unit: &gimli::Unit<Slice<'d>>,
    header: &LineProgramHeader<Slice<'d>>,
    number: u64,
    budget: &Budget,
) -> Option<String> {
    let text = |value: AttributeValue<Slice<'d>>| {
        let text = dwarf.attr_string(unit, value).ok()?;
        (text.len() <= MAX_PATH).then(|| String::from_utf8_lossy(text.slice()))
    };
    let file = header.file(number)?;
    let name = text(file.path_name())?;
    let comp_dir = unit
        .comp_dir
        .filter(|directory| directory.len() <= MAX_PATH)
        .unwrap_or_default();
    let comp_dir = String::from_utf8_lossy(comp_dir.slice());
    let directory = file.directory(header).and_then(text).unwrap_or_default();
    let path = paths::join(&paths::join(&comp_dir, &directory), &name);
    let path = if directory.is_empty() {
        paths::join(&comp_dir, &name)
    } else {
        path
    };
    budget.spend(path.len())?;
    Some(path)
}

impl LineTable {
    fn empty() -> Self {
        Self {
            rows: Vec::new(),
            sequences: Vec::new(),
            map: RangeMap::new(Vec::new()),
        }
    }

    fn new(program: IncompleteLineProgram<Slice>, code: &CodeRanges, most: usize) -> Self {
        let mut table = Self::empty();
        let mut first = 0;
        let mut program = program.rows();
        // A damaged or too long program ends the table. The preceding sequences are complete.
        let mut is_sound = true;
        while let Ok(Some((_, row))) = program.next_row() {
            if !row.end_sequence() {
                if table.rows.len() >= most {
                    break;
                }
                is_sound &= is_canonical(row.address());
                table.add(first, Row::new(row));
                continue;
            }
            is_sound &= is_canonical(row.address());
            if !is_sound || !table.close_sequence(first, row.address(), code) {
                table.rows.truncate(first);
            }
            is_sound = true;
            first = table.rows.len();
        }
        table.rows.truncate(first);
        table.rows.shrink_to_fit();
        let ranges = table.sequences.iter().enumerate();
        table.map = RangeMap::new(
            ranges
                .map(|(number, sequence)| (sequence.range.clone(), number as u32))
                .collect(),
        );
        table
    }

    /// Adds a row to the sequence that begins with row `first`. A row that adds no information
    /// replaces the last one. So does a row beyond the limit at its address.
    fn add(&mut self, first: usize, mut row: Row) {
        let here = self.rows.get_mut(first..).unwrap_or_default();
        let is_full = here
            .len()
            .checked_sub(MAX_AT_ADDRESS)
            .and_then(|at| here.get(at))
            .is_some_and(|before| before.address() == row.address());
        if let Some(last) = here.last_mut()
            && last.address() == row.address()
            && (is_full || last.is_same_line(row))
        {
            if last.prologue_end() {
                row.end_prologue();
            }
            // A row that starts a statement is preferred to a later one that does not.
            if row.is_stmt() || !last.is_stmt() {
                *last = row;
            } else if row.prologue_end() {
                last.end_prologue();
            }
        } else {
            self.rows.push(row);
        }
    }

    /// Closes the sequence that starts at row `first` and ends at `end`. Returns `false` if it
    /// covers no code.
    fn close_sequence(&mut self, first: usize, end: u64, code: &CodeRanges) -> bool {
        let Some(rows) = self.rows.get_mut(first..) else {
            return false;
        };
        rows.sort_by_key(|row| row.address());
        let Some(start) = rows.first().map(|row| row.address()) else {
            return false;
        };
        if start >= end || !code.contains(start) {
            return false;
        }
        rows.chunk_by_mut(|one, next| one.address() == next.address())
            .for_each(choose_representative);
        self.sequences.push(Sequence {
            range: start..end,
            rows: first..self.rows.len(),
        });
        true
    }

    /// Returns the address ranges of the sequences.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.sequences.iter().map(|sequence| sequence.range.clone())
    }

    /// Returns the row that covers `at`.
    pub fn row_at(&self, at: u64, files: &[Arc<str>]) -> Option<LineRow> {
        let sequence = self.sequences.get(self.map.get(at)? as usize)?;
        let rows = self.rows.get(sequence.rows.clone())?;
        let next = rows.partition_point(|row| row.address() <= at);
        row(sequence, rows, next.checked_sub(1)?, files)
    }

    /// Returns the rows that overlap `wanted`, in address order within each sequence.
    pub fn rows_in(&self, wanted: &Range<u64>, files: &[Arc<str>], found: &mut Vec<LineRow>) {
        let mut numbers: Vec<_> = self.map.meeting(wanted.clone()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for sequence in numbers
            .into_iter()
            .filter_map(|number| self.sequences.get(number as usize))
        {
            let Some(rows) = self.rows.get(sequence.rows.clone()) else {
                continue;
            };
            let first = rows
                .partition_point(|row| row.address() <= wanted.start)
                .saturating_sub(1);
            let end = rows.partition_point(|row| row.address() < wanted.end);
            let here = (first..end)
                .filter(|&number| is_representative(rows, number))
                .filter_map(|number| row(sequence, rows, number, files));
            found.extend(here.filter(|row| row.range.end.0 > wanted.start));
        }
    }

    /// Returns the rows of the addresses in `wanted`: the first one begins there, and each lasts
    /// until the next. Addresses that no sequence covers have a row without a file.
    pub fn part_rows(&self, wanted: &Range<u64>, is_file: impl Fn(u32) -> bool) -> Vec<PartRow> {
        let mut found = Vec::new();
        let mut end = wanted.start;
        for (piece, number) in self.map.pieces_in(wanted.clone()) {
            if piece.start > end {
                found.push(PartRow::without_line(end));
            }
            end = piece.end;
            let sequence = self.sequences.get(number as usize);
            let rows = sequence.and_then(|sequence| self.rows.get(sequence.rows.clone()));
            let rows = rows.unwrap_or_default();
            let first = rows.partition_point(|row| row.address() <= piece.start);
            let last = rows.partition_point(|row| row.address() < piece.end);
            let here = (first.saturating_sub(1)..last).filter(|&number| is_representative(rows, number));
            found.extend(here.filter_map(|number| rows.get(number)).map(|row| PartRow {
                address: Svma(row.address().max(piece.start)),
                file: Some(FileNumber(row.file())).filter(|file| is_file(file.0)),
                line: row.line(),
            }));
        }
        if end < wanted.end {
            found.push(PartRow::without_line(end));
        }
        found
    }

    /// Returns the statement starts in the files that `wanted` accepts: line, file number and
    /// address.
    pub fn statements(&self, wanted: &[bool]) -> impl Iterator<Item = (u32, u32, u64)> {
        let of_file = |row: &&Row| wanted.get(row.file() as usize).copied().unwrap_or(false);
        let rows = self
            .rows
            .iter()
            .filter(|row| row.is_stmt() && row.line() != 0)
            .filter(of_file);
        rows.map(|row| (row.line(), row.file(), row.address()))
    }

    /// Returns the end of the prologue of the function at `entry`. It is the first `prologue_end`
    /// mark before `end`. If there is none, it is the second address with a row, as in GDB.
    pub fn after_prologue(&self, entry: u64, end: u64) -> PrologueEnd {
        let Some(sequence) = self
            .map
            .get(entry)
            .and_then(|number| self.sequences.get(number as usize))
        else {
            return PrologueEnd::Unknown;
        };
        let rows = self.rows.get(sequence.rows.clone()).unwrap_or_default();
        let first = rows.partition_point(|row| row.address() < entry);
        let mut rows = (first..rows.len())
            .filter(|&number| is_representative(rows, number))
            .filter_map(|number| rows.get(number))
            .take_while(|row| row.address() < end);
        if let Some(row) = rows.clone().find(|row| row.prologue_end()) {
            return PrologueEnd::Marked(row.address());
        }
        rows.find(|row| row.address() > entry && row.line() != 0)
            .map_or(PrologueEnd::Unknown, |row| PrologueEnd::SecondRow(row.address()))
    }
}

/// Moves the row that represents its address to the end of `here`, the rows at one address. As in
/// GDB, it is the last row, but a row that starts a statement precedes a last one that does not.
fn choose_representative(here: &mut [Row]) {
    let starts_statement = |row: &Row| row.is_stmt() && row.line() != 0;
    if here.last().is_some_and(|row| !row.is_stmt())
        && let Some(found) = here.iter().rposition(starts_statement)
        && let Some(from_it) = here.get_mut(found..)
    {
        from_it.rotate_left(1);
    }
    let ends_prologue = here.iter().any(|row| row.prologue_end());
    if let Some(last) = here.last_mut().filter(|_| ends_prologue) {
        last.end_prologue();
    }
}

/// Returns whether row `number` represents its address: it is the last one there.
fn is_representative(rows: &[Row], number: usize) -> bool {
    let address = |number: usize| rows.get(number).map(|row| row.address());
    address(number) != address(number + 1)
}

/// Returns row `number` of a sequence, which represents its address.
fn row(sequence: &Sequence, rows: &[Row], number: usize, files: &[Arc<str>]) -> Option<LineRow> {
    let row = rows.get(number)?;
    let end = rows
        .get(number + 1)
        .map_or(sequence.range.end, |next| next.address());
    Some(LineRow {
        file: files.get(row.file() as usize).cloned().unwrap_or_default(),
        line: row.line(),
        column: row.column(),
        is_stmt: row.is_stmt(),
        prologue_end: row.prologue_end(),
        range: Svma(row.address())..Svma(end),
    })
}

/// The end of a prologue, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrologueEnd {
    /// The line table marks it.
    Marked(u64),
    /// The second row of the function is taken as the end.
    SecondRow(u64),
    /// The function has at most one row.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a line program (version 4) for one file: a sequence at 0x1000 with these special
    /// opcodes.
    fn program(opcodes: &[u8], length: u64) -> Vec<u8> {
        // Instructions of one byte, is_stmt from the start, lines -1 to +2, opcodes from 13 on.
        let mut header = vec![1, 1, 1, 0xff, 4, 13];
        header.extend([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1]);
        header.extend(b"\0a.c\0\0\0\0\0");
        let mut rest = vec![0, 9, 2];
        rest.extend(0x1000u64.to_le_bytes());
        rest.extend(opcodes);
        // DW_LNS_advance_pc to the end, then DW_LNE_end_sequence.
        rest.push(2);
        let mut left = length;
        while left >= 0x80 {
            rest.push(left as u8 | 0x80);
            left >>= 7;
        }
        rest.extend([left as u8, 0, 1, 1]);
        let mut out = Vec::new();
        out.extend((2 + 4 + header.len() as u32 + rest.len() as u32).to_le_bytes());
        out.extend(4u16.to_le_bytes());
        out.extend((header.len() as u32).to_le_bytes());
        out.extend(header);
        out.extend(rest);
        out
    }

    fn table(opcodes: &[u8], most: usize) -> LineTable {
        let bytes = program(opcodes, 0x1000_0000);
        let section = DebugLine::new(&bytes, gimli::LittleEndian);
        let program = section.program(DebugLineOffset(0), 8, None, None).unwrap();
        LineTable::new(program, &CodeRanges::from_range(0x1000..0x2000_0000), most)
    }

    /// Returns the special opcode that advances by `bytes` and `lines`.
    fn special(bytes: u8, lines: i8) -> u8 {
        (lines + 1) as u8 + 4 * bytes + 13
    }

    #[test]
    fn rows_at_one_address_are_bounded_and_the_last_is_used() {
        let mut opcodes = vec![special(0, 1); 1_000_000];
        opcodes.push(special(1, 2));
        let table = table(&opcodes, MAX_ROWS as usize);
        assert_eq!(table.rows.len(), MAX_AT_ADDRESS + 1);
        let files = ["a.c".into(), "b.c".into()];
        assert_eq!(table.row_at(0x1000, &files).unwrap().line, 1_000_001);
        assert_eq!(table.row_at(0x1001, &files).unwrap().line, 1_000_003);
        let lines = table.statements(&[false, true]).map(|(line, ..)| line);
        assert_eq!(lines.take(3).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn repeated_row_is_kept_once() {
        let table = table(&vec![special(0, 0); 1_000_000], MAX_ROWS as usize);
        assert_eq!(table.rows.len(), 1);
    }

    #[test]
    fn too_long_sequence_is_dropped() {
        let opcodes = vec![special(1, 1); 5000];
        assert_eq!(table(&opcodes, 5000).rows.len(), 5000);
        let cut = table(&opcodes, 4999);
        assert!(cut.rows.is_empty() && cut.row_at(0x1000, &[]).is_none());
    }

    /// A row for each byte of a program must not take more than 16 bytes of memory.
    #[test]
    fn row_takes_sixteen_bytes() {
        let table = table(&vec![special(1, 1); 1 << 20], MAX_ROWS as usize);
        assert_eq!(table.rows.len(), 1 << 20);
        assert_eq!(table.rows.capacity() * size_of::<Row>(), 16 << 20);
    }
}
