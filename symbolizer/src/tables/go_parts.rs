//! Divides the code of Go's own table into parts.

use super::Tables;
use crate::code_part::{CodePart, CodeParts, FileNumber, InlinedPart, PartRow};
use crate::go_table::layout::{Copy, Place};
use crate::go_table::{GoFunction, GoTable};
use crate::types::Language;
use backtrail_pt::Svma;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// The number of functions of a group. Groups are read in parallel.
const GROUP: usize = 1024;

impl<'d> Tables<'d> {
    /// Divides addresses into those of groups of functions of the table, and the rest.
    pub(super) fn go_pieces(&self, wanted: Vec<Range<u64>>) -> (Vec<Vec<Range<u64>>>, Vec<Range<u64>>) {
        let Some(table) = self.go_table() else {
            return (Vec::new(), wanted);
        };
        let mut groups: Vec<Vec<Range<u64>>> = Vec::new();
        let mut rest = Vec::new();
        let mut count = 0;
        for piece in wanted {
            let mut at = piece.start;
            for extent in table.numbers_in(&piece).filter_map(|number| table.extent(number)) {
                let inside = extent.start.max(piece.start)..extent.end.min(piece.end);
                rest.extend(Some(at..inside.start).filter(|gap| !gap.is_empty()));
                at = inside.end;
                if count % GROUP == 0 {
                    groups.push(Vec::new());
                }
                count += 1;
                match groups.last_mut() {
                    Some(group) => append(group, inside),
                    None => rest.push(inside),
                }
            }
            rest.extend(Some(at..piece.end).filter(|gap| !gap.is_empty()));
        }
        (groups, rest)
    }

    /// Returns the parts of a group of functions.
    pub(super) fn go_code_parts(&self, pieces: &[Range<u64>]) -> CodeParts {
        let Some(table) = self.go_table() else {
            return CodeParts::default();
        };
        let mut files = Files::new(table);
        let mut parts = Vec::new();
        for piece in pieces {
            let mut at = piece.start;
            for number in table.numbers_in(piece) {
                let function = table
                    .read_function(number)
                    .filter(|function| self.is_from_go(function));
                let Some(function) = function else { continue };
                let range = common(&function.range(), piece);
                if range.is_empty() {
                    continue;
                }
                self.symbol_parts(at..range.start, None, &mut parts);
                at = range.end;
                let shown = self.go_function(table, &function);
                parts.push(CodePart {
                    rows: files.rows(&function, piece),
                    inlined: files.inlined(&function, piece),
                    range: Svma(range.start)..Svma(range.end),
                    function: shown.name,
                    linkage_name: shown.linkage_name,
                    signature: None,
                });
            }
            self.symbol_parts(at..piece.end, None, &mut parts);
        }
        CodeParts {
            files: files.paths,
            language: Some(Language::Go),
            parts,
        }
    }
}

/// The source files of a group, numbered in the order in which they occur.
struct Files<'t, 'd> {
    table: &'t GoTable<'d>,
    paths: Vec<Arc<str>>,
    numbers: FxHashMap<u32, Option<FileNumber>>,
}

impl<'t, 'd> Files<'t, 'd> {
    fn new(table: &'t GoTable<'d>) -> Self {
        Self {
            table,
            paths: Vec::new(),
            numbers: FxHashMap::default(),
        }
    }

    /// Returns the number of the file of a place.
    fn number(&mut self, place: Place) -> Option<FileNumber> {
        let (table, paths) = (self.table, &mut self.paths);
        let add = || {
            paths.push(table.path(place.file)?);
            u32::try_from(paths.len() - 1).ok().map(FileNumber)
        };
        *self.numbers.entry(place.file).or_insert_with(add)
    }

    /// Returns the rows of a function in `wanted`.
    fn rows(&mut self, function: &GoFunction, wanted: &Range<u64>) -> Vec<PartRow> {
        let mut rows = Vec::new();
        for (offsets, place) in function.layout.rows() {
            let here = common(&function.addresses(offsets), wanted);
            if here.is_empty() {
                continue;
            }
            let file = place.and_then(|place| self.number(place));
            rows.push(match place.filter(|_| file.is_some()) {
                Some(place) => PartRow {
                    address: Svma(here.start),
                    file,
                    line: place.line,
                },
                None => PartRow::without_line(here.start),
            });
        }
        rows
    }

    /// Returns the inlined copies of a function in `wanted`.
    fn inlined(&mut self, function: &GoFunction, wanted: &Range<u64>) -> Vec<InlinedPart> {
        // The copies that were added, by their indexes in the function. Those around a copy with an
        // unknown name stay.
        let mut numbers: Vec<Option<usize>> = Vec::new();
        let mut parts = Vec::new();
        for copy in &function.layout.copies {
            let around = match copy.around {
                Some(around) => numbers.get(around as usize).copied().flatten().map(Some),
                None => Some(None),
            };
            let part = around.and_then(|around| self.inlined_part(function, copy, around, wanted));
            numbers.push(part.is_some().then_some(parts.len()));
            parts.extend(part);
        }
        parts
    }

    fn inlined_part(
        &mut self,
        function: &GoFunction,
        copy: &Copy,
        around: Option<usize>,
        wanted: &Range<u64>,
    ) -> Option<InlinedPart> {
        let name = self.table.name(copy.name)?;
        let addresses = copy
            .parts
            .iter()
            .map(|part| common(&function.addresses(part.clone()), wanted));
        let ranges: Vec<_> = addresses
            .filter(|range| !range.is_empty())
            .map(|range| Svma(range.start)..Svma(range.end))
            .collect();
        let call = copy.call.filter(|call| call.line != 0);
        let call_file = call.and_then(|call| self.number(call));
        (!ranges.is_empty()).then_some(InlinedPart {
            around,
            ranges,
            function: name.readable,
            linkage_name: name.linkage,
            signature: None,
            call_file,
            call_line: call.filter(|_| call_file.is_some()).map_or(0, |call| call.line),
        })
    }
}

fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// Adds a piece to sorted ones. It may continue the last one.
fn append(pieces: &mut Vec<Range<u64>>, piece: Range<u64>) {
    match pieces.last_mut() {
        Some(last) if last.end == piece.start => last.end = piece.end,
        _ => pieces.push(piece),
    }
}
