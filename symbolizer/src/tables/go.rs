//! Answers from Go's own table where no unit of DWARF covers an address.

use super::{MAX_INLINED, Tables};
use crate::dwarf::{FunctionAt, ResolvedName, Statement, ends_with};
use crate::go_table::layout::{Copy, Place};
use crate::go_table::{FunctionNumber, GoFunction, GoTable};
use crate::{Declaration, Frame, Function, InlinedCopy, LineRow, SourceLocation};
use backtrail_pt::Svma;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

impl<'d> Tables<'d> {
    /// Returns the table of the module, or else of its debug file.
    pub(super) fn go_table(&self) -> Option<&GoTable<'d>> {
        let open = || {
            let files = [Some(&self.sources.module), self.sources.debug.as_ref()];
            let mut files = files.into_iter().flatten();
            files.find_map(|file| GoTable::open(&file.elf().ok()?, &self.code))
        };
        self.go.get_or_init(open).as_ref()
    }

    /// Returns whether DWARF describes the unit of an address. Then it describes lines better.
    fn has_unit(&self, at: u64) -> bool {
        self.debug().is_some_and(|debug| debug.covers(at))
    }

    /// Returns the function at an address that no unit of DWARF covers.
    pub(super) fn go_function_at(&self, at: u64) -> Option<(&GoTable<'d>, GoFunction)> {
        let table = self.go_table().filter(|_| !self.has_unit(at))?;
        let function = table.function(table.number_at(at)?)?;
        let is_here = function.range().contains(&at) && self.is_from_go(&function);
        is_here.then_some((table, function))
    }

    /// Returns whether the table is used for a function. A symbol says more than a function
    /// without lines.
    pub(super) fn is_from_go(&self, function: &GoFunction) -> bool {
        !function.layout.segments.is_empty() || self.symbols.at(function.start).is_none()
    }

    /// Builds a function from the table.
    pub(super) fn go_function(&self, table: &GoTable<'d>, function: &GoFunction) -> Function {
        let name = ResolvedName {
            name: function.name.clone(),
            declared: declaration(table, function.layout.declared),
            has_linkage: false,
        };
        let part = function.range();
        self.described(&FunctionAt {
            name: &name,
            start: function.start,
            parts: std::slice::from_ref(&part),
            part: part.clone(),
            optimized: false,
        })
    }

    /// Returns the row that covers `at`.
    pub(super) fn go_line_at(&self, at: u64) -> Option<LineRow> {
        let (table, function) = self.go_function_at(at)?;
        let number = function.layout.segment_at(function.offset(at)?)?;
        let (offsets, place) = function.layout.row(number)?;
        line_row(table, &function, offsets, place)
    }

    /// Returns the inlined copies at an address, innermost first, and the places of their calls.
    pub(super) fn go_inlined_at(&self, at: u64) -> Vec<(Frame, Option<SourceLocation>)> {
        let Some((table, function)) = self.go_function_at(at) else {
            return Vec::new();
        };
        let Some(offset) = function.offset(at) else {
            return Vec::new();
        };
        let frame = |copy: &Copy| {
            let name = table.name(copy.name)?;
            let part = copy.parts.iter().find(|part| part.contains(&offset))?;
            let part = function.addresses(part.clone());
            let entry = function.addresses(copy.parts.first()?.clone()).start;
            let frame = Frame {
                function: name.readable,
                linkage_name: name.linkage,
                location: None,
                declared: declaration(table, copy.declared),
                range: Svma(part.start)..Svma(part.end),
                entry: Svma(entry),
                inlined: true,
            };
            let call = copy.call.and_then(|call| table.resolve(call));
            let call = call.map(|(file, line)| SourceLocation {
                file,
                line,
                column: 0,
            });
            Some((frame, call))
        };
        let copies = function.layout.copies_at(offset).take(MAX_INLINED);
        copies.map_while(frame).collect()
    }

    /// Returns the entry of the innermost inlined copy at an address.
    pub(super) fn go_innermost_at(&self, at: u64) -> Option<u64> {
        let (_, function) = self.go_function_at(at)?;
        let copy = function.layout.copies_at(function.offset(at)?).next()?;
        Some(function.addresses(copy.parts.first()?.clone()).start)
    }

    /// Returns the rows that overlap `range`, in address order.
    pub(super) fn go_lines_in(&self, range: &Range<u64>) -> Vec<LineRow> {
        let mut rows = Vec::new();
        self.for_each_go_function(range, |table, function| {
            for (offsets, place) in function.layout.rows() {
                let row = place.and_then(|place| line_row(table, function, offsets, place));
                rows.extend(row.filter(|row| row.range.start.0 < range.end && row.range.end.0 > range.start));
            }
        });
        rows
    }

    /// Returns the starts of the functions that are used from the table and not from DWARF.
    pub(super) fn go_starts(&self) -> Vec<u64> {
        let Some(table) = self.go_table() else {
            return Vec::new();
        };
        let all = table.numbers().filter_map(|number| table.entry_and_name(number));
        all.map(|(start, _)| start).collect()
    }

    /// Returns where lines of the files that `wanted` names begin, from `line` on: the places of
    /// the first such line.
    pub(super) fn go_statements_of_line(&self, wanted: &str, line: u32) -> Vec<Statement> {
        let mut found: Vec<Statement> = Vec::new();
        let mut nearest = u32::MAX;
        let mut matching: FxHashMap<u32, Option<Arc<str>>> = FxHashMap::default();
        self.for_each_go_function(&(0..u64::MAX), |table, function| {
            for (offsets, place) in function.layout.rows() {
                let here = place.filter(|place| place.line >= line && place.line <= nearest);
                let Some(here) = here else { continue };
                let find = || table.path(here.file).filter(|path| ends_with(path, wanted));
                let Some(file) = matching.entry(here.file).or_insert_with(find).clone() else {
                    continue;
                };
                if here.line < nearest {
                    nearest = here.line;
                    found.clear();
                }
                let address = function.addresses(offsets).start;
                let line = here.line;
                found.push(Statement { address, file, line });
            }
        });
        found
    }

    /// Returns the inlined copies of the functions whose name is wanted, in address order.
    pub(super) fn go_inlined_copies(
        &self,
        is_wanted: impl Fn(&crate::demangle::Name) -> bool,
    ) -> Vec<InlinedCopy> {
        let mut wanted: FxHashMap<u32, bool> = FxHashMap::default();
        let mut copies = Vec::new();
        self.for_each_go_function(&(0..u64::MAX), |table, function| {
            for copy in &function.layout.copies {
                let test = || table.name(copy.name).is_some_and(|name| is_wanted(&name));
                if *wanted.entry(copy.name).or_insert_with(test) {
                    copies.extend(inlined_copy(table, function, copy));
                }
            }
        });
        copies
    }

    /// Returns the names of inlined functions that begin with `prefix`, at most `limit`.
    pub fn inlined_names(&self, prefix: &str, limit: usize) -> BTreeSet<Arc<str>> {
        let debug = self.debug();
        let mut names = debug.map_or_else(BTreeSet::new, |debug| debug.inlined_names(prefix, limit));
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        self.for_each_go_function(&(0..u64::MAX), |table, function| {
            for copy in &function.layout.copies {
                if names.len() >= limit || !seen.insert(copy.name) {
                    continue;
                }
                let name = table.name(copy.name).map(|name| name.readable);
                names.extend(name.filter(|name| name.starts_with(prefix)));
            }
        });
        names
    }

    /// Reads the functions in `range` that are used from the table. Their code is not cached.
    fn for_each_go_function(&self, range: &Range<u64>, mut visit: impl FnMut(&GoTable<'d>, &GoFunction)) {
        let Some(table) = self.go_table() else { return };
        for number in table.numbers_in(range) {
            if let Some(function) = self.unit_free(table, number) {
                visit(table, &function);
            }
        }
    }

    /// Returns a function of the table if no unit of DWARF covers its entry.
    fn unit_free(&self, table: &GoTable<'d>, number: FunctionNumber) -> Option<GoFunction> {
        let start = table.extent(number)?.start;
        if self.has_unit(start) {
            return None;
        }
        table
            .read_function(number)
            .filter(|function| self.is_from_go(function))
    }
}

fn line_row(
    table: &GoTable<'_>,
    function: &GoFunction,
    offsets: Range<u32>,
    place: Place,
) -> Option<LineRow> {
    let (file, line) = table.resolve(place)?;
    let range = function.addresses(offsets);
    Some(LineRow {
        file,
        line,
        column: 0,
        is_stmt: true,
        prologue_end: false,
        range: Svma(range.start)..Svma(range.end),
    })
}

/// Returns a declaration. Functions that the compiler generates have line 1, and none.
fn declaration(table: &GoTable<'_>, place: Option<Place>) -> Option<Declaration> {
    table.resolve(place.filter(|place| place.line > 1)?)
}

fn inlined_copy(table: &GoTable<'_>, function: &GoFunction, copy: &Copy) -> Option<InlinedCopy> {
    let parts = copy.parts.iter().map(|part| function.addresses(part.clone()));
    let ranges: Vec<_> = parts.map(|part| Svma(part.start)..Svma(part.end)).collect();
    let entry = ranges.first()?.start;
    Some(InlinedCopy {
        name: table.name(copy.name)?.readable,
        entry,
        begin: entry,
        ranges,
        declared: declaration(table, copy.declared),
    })
}
