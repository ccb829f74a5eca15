//! Line tables (DWARF 5, section 6.2): one a line program, prepared when first asked.

use super::budget::Budget;
use super::paths::{self, MAX_PATH};
use super::{Dwarf, Slice, Unit};
use crate::LineRow;
use crate::code::CodeRanges;
use crate::range_map::RangeMap;
use backtrail_pt::Svma;
use gimli::{
    AttributeValue, ColumnType, DebugLine, DebugLineOffset, IncompleteLineProgram, LineProgramHeader,
};
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
}

/// The rows of one line program.
pub(crate) struct LineTable {
    rows: Vec<Row>,
    /// The addresses that have rows, in order within their sequence, and the row that speaks for each.
    starts: Vec<(u64, u32)>,
    sequences: Vec<Sequence>,
    map: RangeMap,
}

struct Sequence {
    range: Range<u64>,
    /// Indexes into `starts`.
    starts: Range<usize>,
}

#[derive(Clone, Copy)]
struct Row {
    address: u64,
    file: u32,
    line: u32,
    column: u32,
    is_stmt: bool,
    prologue_end: bool,
}

impl<'d> LineProgram<'d> {
    /// The program at the start of `section`, which ends where the next program starts.
    pub fn new(section: &'d [u8], unit: &Unit<'d>) -> Self {
        Self {
            section,
            address_size: unit.gimli.header.address_size(),
            comp_dir: unit.gimli.comp_dir,
            comp_name: unit.gimli.name,
            files: OnceLock::new(),
            table: OnceLock::new(),
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

    /// The paths by file number. In DWARF 5 numbers start at 0; before, 0 is the unit's own file.
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

    /// The prepared rows; sequences that do not start in code are left out.
    pub fn table(&self, code: &CodeRanges) -> &LineTable {
        self.table.get_or_init(|| {
            self.parse()
                .map_or_else(LineTable::empty, |program| LineTable::new(program, code))
        })
    }
}

/// The path of a file of the line table, joined with the compilation directory.
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
            starts: Vec::new(),
            sequences: Vec::new(),
            map: RangeMap::new(Vec::new()),
        }
    }

    fn new(program: IncompleteLineProgram<Slice>, code: &CodeRanges) -> Self {
        let mut table = Self::empty();
        let mut first = 0;
        let mut program = program.rows();
        // A damaged program ends the table; the sequences before it are whole.
        while let Ok(Some((_, row))) = program.next_row() {
            if !row.end_sequence() {
                table.rows.push(Row {
                    address: row.address(),
                    file: row.file_index().try_into().unwrap_or(u32::MAX),
                    line: row.line().map_or(0, |line| line.get().try_into().unwrap_or(0)),
                    column: match row.column() {
                        ColumnType::LeftEdge => 0,
                        ColumnType::Column(column) => column.get().try_into().unwrap_or(0),
                    },
                    is_stmt: row.is_stmt(),
                    prologue_end: row.prologue_end(),
                });
                continue;
            }
            if !table.close_sequence(first, row.address(), code) {
                table.rows.truncate(first);
            }
            first = table.rows.len();
        }
        table.rows.truncate(first);
        let ranges = table.sequences.iter().enumerate();
        table.map = RangeMap::new(
            ranges
                .map(|(number, sequence)| (sequence.range.clone(), number as u32))
                .collect(),
        );
        table
    }

    /// Makes the rows from `first` a sequence that ends at `end`; `false` if it covers no code.
    fn close_sequence(&mut self, first: usize, end: u64, code: &CodeRanges) -> bool {
        let Some(rows) = self.rows.get_mut(first..) else {
            return false;
        };
        rows.sort_by_key(|row| row.address);
        let Some(start) = rows.first().map(|row| row.address) else {
            return false;
        };
        if start >= end || !code.contains(start) {
            return false;
        }
        let first_start = self.starts.len();
        for (number, row) in (first..).zip(rows.iter_mut()) {
            match self.starts.last_mut().filter(|_| number > first) {
                Some((address, speaker)) if *address == row.address => {
                    *speaker = number as u32;
                }
                _ => self.starts.push((row.address, number as u32)),
            }
        }
        self.sequences.push(Sequence {
            range: start..end,
            starts: first_start..self.starts.len(),
        });
        self.prefer_statements(first, first_start);
        true
    }

    /// Of several rows at one address the last speaks for it; but one that starts a statement
    /// before a last one that does not, as in GDB.
    fn prefer_statements(&mut self, first: usize, first_start: usize) {
        let mut from = first;
        for (_, speaker) in self.starts.iter_mut().skip(first_start) {
            let last = *speaker as usize;
            let here = self.rows.get(from..=last).unwrap_or_default();
            if here.last().is_some_and(|row| !row.is_stmt)
                && let Some(found) = here.iter().rposition(|row| row.is_stmt && row.line != 0)
            {
                *speaker = (from + found) as u32;
            }
            let prologue_end = here.iter().any(|row| row.prologue_end);
            if let Some(row) = self.rows.get_mut(*speaker as usize) {
                row.prologue_end |= prologue_end;
            }
            from = last + 1;
        }
    }

    /// The sequences' addresses.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.sequences.iter().map(|sequence| sequence.range.clone())
    }

    /// The row that covers `at`.
    pub fn row_at(&self, at: u64, files: &[Arc<str>]) -> Option<LineRow> {
        let sequence = self.sequences.get(self.map.get(at)? as usize)?;
        let starts = self.starts.get(sequence.starts.clone())?;
        let next = starts.partition_point(|(address, _)| *address <= at);
        self.row(sequence, starts, next.checked_sub(1)?, files)
    }

    /// The rows that cover some of `wanted`, in address order within each sequence.
    pub fn rows_in(&self, wanted: &Range<u64>, files: &[Arc<str>], rows: &mut Vec<LineRow>) {
        let mut numbers: Vec<_> = self.map.meeting(wanted.clone()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for sequence in numbers
            .into_iter()
            .filter_map(|number| self.sequences.get(number as usize))
        {
            let Some(starts) = self.starts.get(sequence.starts.clone()) else {
                continue;
            };
            let first = starts
                .partition_point(|(address, _)| *address <= wanted.start)
                .saturating_sub(1);
            let end = starts.partition_point(|(address, _)| *address < wanted.end);
            let here = (first..end).filter_map(|number| self.row(sequence, starts, number, files));
            rows.extend(here.filter(|row| row.range.end.0 > wanted.start));
        }
    }

    fn row(
        &self,
        sequence: &Sequence,
        starts: &[(u64, u32)],
        number: usize,
        files: &[Arc<str>],
    ) -> Option<LineRow> {
        let (start, speaker) = *starts.get(number)?;
        let row = self.rows.get(speaker as usize)?;
        let end = starts
            .get(number + 1)
            .map_or(sequence.range.end, |(address, _)| *address);
        Some(LineRow {
            file: files.get(row.file as usize).cloned().unwrap_or_default(),
            line: row.line,
            column: row.column,
            is_stmt: row.is_stmt,
            prologue_end: row.prologue_end,
            range: Svma(start)..Svma(end),
        })
    }

    /// Starts of statements in the files that `wanted` accepts: line, file number and address.
    pub fn statements(&self, wanted: &[bool]) -> impl Iterator<Item = (u32, u32, u64)> {
        let of_file = |row: &&Row| wanted.get(row.file as usize).copied().unwrap_or(false);
        let rows = self
            .rows
            .iter()
            .filter(|row| row.is_stmt && row.line != 0)
            .filter(of_file);
        rows.map(|row| (row.line, row.file, row.address))
    }

    /// Where the prologue of the function at `entry` ends: at the first mark before `end`, else at
    /// the second address that has a row, as GDB does for compilers that write no marks.
    pub fn after_prologue(&self, entry: u64, end: u64) -> Prologue {
        let Some(sequence) = self
            .map
            .get(entry)
            .and_then(|number| self.sequences.get(number as usize))
        else {
            return Prologue::Unknown;
        };
        let starts = self.starts.get(sequence.starts.clone()).unwrap_or_default();
        let first = starts.partition_point(|(address, _)| *address < entry);
        let rows = starts
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(|(address, _)| *address < end);
        let mut rows =
            rows.filter_map(|(address, speaker)| Some((*address, self.rows.get(*speaker as usize)?)));
        if let Some((address, _)) = rows.clone().find(|(_, row)| row.prologue_end) {
            return Prologue::Marked(address);
        }
        rows.find(|(address, row)| *address > entry && row.line != 0)
            .map_or(Prologue::Unknown, |(address, _)| Prologue::SecondRow(address))
    }
}

/// Where a prologue ends, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prologue {
    /// The line table marks it.
    Marked(u64),
    /// The second row of the function.
    SecondRow(u64),
    /// The function has one row, or none.
    Unknown,
}
