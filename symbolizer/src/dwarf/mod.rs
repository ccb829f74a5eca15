//! The DWARF of one file (DWARF 2 to 5), read a unit at a time.

mod abbreviations;
mod budget;
mod call_sites;
mod dies;
mod entry;
mod evaluate;
mod index;
mod line_row;
mod lines;
mod named;
mod paths;
mod resolve;
mod scopes;
mod split;
mod types;
mod unit;

use crate::code::CodeRanges;
use crate::range_map::RangeMap;
use crate::source::{Elf, Source};
use crate::{LineRow, SourceLocation};
use abbreviations::AbbreviationTables;
use dies::{InlinedCall, PhysicalFunction, UnitFunctions};
use gimli::{LittleEndian, UnitType};
use index::UnitIndex;
use lines::{LineProgram, LineTable};
use named::AllNames;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use unit::Unit;

pub(crate) use budget::Budget;
pub(crate) use dies::ResolvedName;
pub(crate) use lines::Prologue;
pub(crate) use split::{Skeleton, skeletons};

type Slice<'d> = gimli::EndianSlice<'d, LittleEndian>;
type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;

/// All units of a file.
pub(crate) struct DebugInfo<'d> {
    dwarf: Dwarf<'d>,
    /// In the order of the sections: `.debug_types` is taken to stand behind `.debug_info`.
    units: Vec<LazyUnit<'d>>,
    /// Where the type is that a signature names.
    signatures: FxHashMap<u64, usize>,
    programs: Vec<LineProgram<'d>>,
    /// Numbers in `units` by address.
    map: RangeMap,
    code: CodeRanges,
    /// Only lends names.
    supplementary: Option<Box<DebugInfo<'d>>>,
    budget: Budget,
    /// How many rows of line tables may still be prepared.
    line_rows: Budget,
    names: OnceLock<AllNames>,
    /// Which units have a file, by the last component of its path.
    with_file: OnceLock<BTreeMap<Box<str>, Vec<usize>>>,
}

struct LazyUnit<'d> {
    unit: Unit<'d>,
    /// The sections that it was split off into; `None`: those of the file.
    split: Option<Arc<Dwarf<'d>>>,
    /// Where the `.debug_info` is taken to begin that it is in.
    base: usize,
    /// Where it is in `.debug_info`, and behind that in `.debug_types`.
    extent: Range<usize>,
    /// Number in `programs`.
    program: Option<usize>,
    functions: OnceLock<Box<UnitFunctions<'d>>>,
    index: OnceLock<Box<UnitIndex<'d>>>,
}

/// A physical function as DWARF describes it.
pub(crate) struct FunctionHere<'i> {
    pub name: &'i ResolvedName,
    pub start: u64,
    /// The part around the address asked for.
    pub part: Range<u64>,
    /// All parts, the one with `start` first.
    pub parts: &'i [Range<u64>],
    /// The unit was compiled with optimization, so arguments are in place at the entry.
    pub optimized: bool,
}

/// An inlined copy around an address.
pub(crate) struct InlinedHere<'i> {
    pub name: &'i ResolvedName,
    /// Its lowest address.
    pub start: u64,
    /// The part around the address asked for.
    pub part: Range<u64>,
    /// Where the call that was inlined is written.
    pub call: SourceLocation,
}

/// The code of a source line in one function or inlined copy.
pub(crate) struct Statement {
    pub address: u64,
    pub file: Arc<str>,
    pub line: u32,
}

impl<'d> DebugInfo<'d> {
    /// Reads the root entry of every unit in `source`; `None` where there is no DWARF.
    pub fn new(source: &'d Source, elf: &Elf<'d>, code: CodeRanges) -> Option<Self> {
        let dwarf = load(source, elf);
        let mut headers = Vec::new();
        let types = source.section(elf, ".debug_info").len();
        let most = most_units(types.saturating_add(source.section(elf, ".debug_types").len()));
        let mut all = dwarf.units();
        // A damaged header ends the list: the next one cannot be found.
        while let Some(header) = all.next().ok().flatten().filter(|_| headers.len() < most) {
            headers.push(header);
        }
        let mut all = dwarf.type_units();
        while let Some(header) = all.next().ok().flatten().filter(|_| headers.len() < most) {
            headers.push(header);
        }
        if headers.is_empty() {
            return None;
        }
        let tables = AbbreviationTables::new(source.section(elf, ".debug_abbrev"), &headers);
        let budget = Budget::new(source.dwarf_size(elf));
        let units: Vec<_> = headers
            .into_iter()
            .filter_map(|header| {
                let start = match header.debug_info_offset() {
                    Some(offset) => offset.0,
                    None => types.checked_add(header.debug_types_offset()?.0)?,
                };
                let extent = start..start.checked_add(header.length_including_self())?;
                let unit = Unit::open(&dwarf, header, &tables, &budget)?;
                Some(LazyUnit {
                    unit,
                    split: None,
                    base: 0,
                    extent,
                    program: None,
                    functions: OnceLock::new(),
                    index: OnceLock::new(),
                })
            })
            .collect();
        let mut info = Self {
            dwarf,
            units,
            signatures: FxHashMap::default(),
            programs: Vec::new(),
            map: RangeMap::default(),
            code,
            supplementary: None,
            budget,
            line_rows: Budget::of(lines::MAX_ROWS_OF_FILE),
            names: OnceLock::new(),
            with_file: OnceLock::new(),
        };
        info.sign(0);
        Some(info)
    }

    /// Notes the types that the units from this one on describe.
    fn sign(&mut self, from: usize) {
        for unit in self.units.get(from..).unwrap_or_default() {
            if let UnitType::Type {
                type_signature,
                type_offset,
            }
            | UnitType::SplitType {
                type_signature,
                type_offset,
            } = unit.unit.gimli.header.type_()
            {
                // All units of one signature describe the same type.
                self.signatures
                    .entry(type_signature.0)
                    .or_insert(unit.extent.start.saturating_add(type_offset.0));
            }
        }
    }

    /// Once all units are there: finds their line programs, and which addresses they cover.
    pub fn complete(&mut self, lines: &'d [u8]) {
        self.find_programs(lines);
        self.map_addresses();
    }

    /// Lets names be found in a supplementary file.
    pub fn set_supplementary(&mut self, source: &'d Source, elf: &Elf<'d>) {
        self.dwarf.set_sup(load(source, elf));
        self.supplementary = Self::new(source, elf, CodeRanges::default()).map(|mut info| {
            info.complete(source.section(elf, ".debug_line"));
            Box::new(info)
        });
    }

    /// Gives each line program the bytes up to where the next one starts, and its units its number.
    fn find_programs(&mut self, section: &'d [u8]) {
        let start = |unit: &LazyUnit| Some(unit.unit.line_program?.0).filter(|start| *start < section.len());
        let starts: BTreeSet<usize> = self.units.iter().filter_map(start).collect();
        let starts: Vec<usize> = starts.into_iter().collect();
        let mut programs: Vec<Option<LineProgram>> = starts.iter().map(|_| None).collect();
        for unit in &mut self.units {
            let Some(number) = start(unit).and_then(|start| starts.binary_search(&start).ok()) else {
                continue;
            };
            unit.program = Some(number);
            let end = starts.get(number + 1).copied().unwrap_or(section.len());
            if let (Some(program), Some(start)) = (programs.get_mut(number), starts.get(number)) {
                program.get_or_insert_with(|| {
                    LineProgram::new(section.get(*start..end).unwrap_or_default(), &unit.unit)
                });
            }
        }
        self.programs = programs.into_iter().flatten().collect();
    }

    /// Units that do not say what they cover cover what their line table does.
    fn map_addresses(&mut self) {
        let mut ranges = Vec::new();
        let mut covered = BTreeSet::new();
        for (number, unit) in (0..).zip(&self.units) {
            let code = unit
                .unit
                .ranges
                .iter()
                .filter(|range| self.code.contains(range.start));
            ranges.extend(code.map(|range| (range.clone(), number)));
            covered.extend(unit.program.filter(|_| !unit.unit.ranges.is_empty()));
        }
        for (number, unit) in (0..).zip(&self.units) {
            if let Some(program) = unit.program.filter(|program| covered.insert(*program)) {
                let program = self.programs.get(program);
                let table = program.map(|program| program.table(&self.code, &self.line_rows));
                ranges.extend(
                    table
                        .into_iter()
                        .flat_map(LineTable::ranges)
                        .map(|range| (range, number)),
                );
            }
        }
        self.map = RangeMap::new(ranges);
    }

    /// How many units keep their entries in other files (`.dwo`) that were not found.
    pub fn split_units(&self) -> usize {
        self.units.iter().filter(|unit| unit.unit.split).count()
    }

    /// Where the entries of a unit are.
    fn sections<'i>(&'i self, unit: &'i LazyUnit<'d>) -> &'i Dwarf<'d> {
        unit.split.as_deref().unwrap_or(&self.dwarf)
    }

    fn unit_at(&self, at: u64) -> Option<&LazyUnit<'d>> {
        self.units.get(self.map.get(at)? as usize)
    }

    /// The physical function around `at`.
    pub fn function_at(&self, at: u64) -> Option<FunctionHere<'_>> {
        let unit = self.unit_at(at)?;
        let functions = self.functions_of(unit);
        let function: &PhysicalFunction = functions
            .functions
            .get(functions.function_map.get(at)? as usize)?;
        Some(FunctionHere {
            name: self.name_of(unit, functions, function.entry)?,
            start: function.start,
            part: function.parts.iter().find(|part| part.contains(&at))?.clone(),
            parts: &function.parts,
            optimized: functions.has_location_lists,
        })
    }

    /// The inlined copies around `at`, innermost first, at most `limit`.
    pub fn inlined_at(&self, at: u64, limit: usize) -> Vec<InlinedHere<'_>> {
        let Some(unit) = self.unit_at(at) else {
            return Vec::new();
        };
        let functions = self.functions_of(unit);
        let innermost = functions
            .inlined_map
            .get(at)
            .and_then(|number| functions.inlined.get(number as usize));
        let outwards = |copy: &&InlinedCall| functions.inlined.get(copy.parent? as usize);
        let chain = std::iter::successors(innermost, outwards).take(limit);
        chain
            .map_while(|copy| self.inlined_here(unit, functions, copy, at))
            .collect()
    }

    fn inlined_here<'i>(
        &'i self,
        unit: &'i LazyUnit<'d>,
        functions: &'i UnitFunctions<'d>,
        copy: &'i InlinedCall,
        at: u64,
    ) -> Option<InlinedHere<'i>> {
        Some(InlinedHere {
            name: self.name_of(unit, functions, copy.entry)?,
            start: copy.ranges.iter().map(|range| range.start).min()?,
            part: copy.ranges.iter().find(|range| range.contains(&at))?.clone(),
            call: SourceLocation {
                file: self.file(unit, copy.call_file).unwrap_or_default(),
                line: copy.call_line,
                column: copy.call_column,
            },
        })
    }

    fn functions_of<'i>(&'i self, unit: &'i LazyUnit<'d>) -> &'i UnitFunctions<'d> {
        unit.functions.get_or_init(|| {
            Box::new(UnitFunctions::new(
                self.sections(unit),
                &unit.unit,
                &self.code,
                &self.budget,
            ))
        })
    }

    fn program<'i>(&'i self, unit: &LazyUnit<'d>) -> Option<(&'i LineTable, &'i [Arc<str>])> {
        let program = self.programs.get(unit.program?)?;
        Some((
            program.table(&self.code, &self.line_rows),
            program.files(&self.dwarf, &unit.unit.gimli, &self.budget),
        ))
    }

    fn file(&self, unit: &LazyUnit<'d>, number: u64) -> Option<Arc<str>> {
        let program = self.programs.get(unit.program?)?;
        let files = program.files(&self.dwarf, &unit.unit.gimli, &self.budget);
        files.get(usize::try_from(number).ok()?).cloned()
    }

    /// The row that covers `at`.
    pub fn line_at(&self, at: u64) -> Option<LineRow> {
        let (table, files) = self.program(self.unit_at(at)?)?;
        table.row_at(at, files)
    }

    /// The rows that cover some of `range`, in address order.
    pub fn lines_in(&self, range: Range<u64>) -> Vec<LineRow> {
        let units: BTreeSet<u32> = self.map.meeting(range.clone()).collect();
        let mut seen = BTreeSet::new();
        let mut rows = Vec::new();
        for unit in units
            .into_iter()
            .filter_map(|number| self.units.get(number as usize))
        {
            if let Some((table, files)) = self.program(unit).filter(|_| seen.insert(unit.program)) {
                table.rows_in(&range, files, &mut rows);
            }
        }
        rows.sort_by_key(|row| (row.range.start, row.range.end));
        rows
    }

    /// Where the prologue of a function ends.
    pub fn after_prologue(&self, entry: u64, end: u64) -> Prologue {
        let program = self.unit_at(entry).and_then(|unit| self.program(unit));
        program.map_or(Prologue::Unknown, |(table, _)| table.after_prologue(entry, end))
    }

    /// One unit for each line program, each with its number.
    fn units_with_programs(&self) -> impl Iterator<Item = (usize, &LazyUnit<'d>)> {
        let mut seen = BTreeSet::new();
        let units = self.units.iter().enumerate();
        units.filter(move |(_, unit)| unit.program.is_some_and(|program| seen.insert(program)))
    }

    /// The paths of the files of a unit's line program, by number.
    fn files_of(&self, unit: &LazyUnit<'d>) -> &[Arc<str>] {
        let program = unit.program.and_then(|program| self.programs.get(program));
        program.map_or(&[], |program| {
            program.files(&self.dwarf, &unit.unit.gimli, &self.budget)
        })
    }

    /// The units of whose files one has a path with this last component.
    fn units_with_file(&self, name: &str) -> impl Iterator<Item = &LazyUnit<'d>> {
        let index = self.with_file.get_or_init(|| {
            let mut index: BTreeMap<Box<str>, Vec<usize>> = BTreeMap::new();
            for (number, unit) in self.units_with_programs() {
                for name in self.files_of(unit).iter().filter_map(|file| paths::name(file)) {
                    let units = index.entry(name.into()).or_default();
                    if units.last() != Some(&number) {
                        units.push(number);
                    }
                }
            }
            index
        });
        let numbers = index.get(name).map_or(&[][..], Vec::as_slice);
        numbers.iter().filter_map(|&number| self.units.get(number))
    }

    /// The paths of all source files.
    pub fn source_files(&self) -> BTreeSet<Arc<str>> {
        let files = self
            .units_with_programs()
            .flat_map(|(_, unit)| self.files_of(unit));
        files.filter(|file| !file.is_empty()).cloned().collect()
    }

    /// The statements of `line` in the files that `wanted` names, or of the nearest line after it.
    pub fn statements_of_line(&self, wanted: &str, line: u32) -> Vec<Statement> {
        let mut nearest = u32::MAX;
        let mut found: Vec<Statement> = Vec::new();
        let Some(name) = paths::name(wanted) else {
            return found;
        };
        for unit in self.units_with_file(name) {
            let Some(program) = unit.program.and_then(|program| self.programs.get(program)) else {
                continue;
            };
            let files = self.files_of(unit);
            let matching: Vec<bool> = files.iter().map(|file| paths::ends_with(file, wanted)).collect();
            if !matching.contains(&true) {
                continue;
            }
            for (here, file, address) in program.table(&self.code, &self.line_rows).statements(&matching) {
                if here < line || here > nearest {
                    continue;
                }
                if here < nearest {
                    nearest = here;
                    found.clear();
                }
                let file = files.get(file as usize).cloned().unwrap_or_default();
                found.push(Statement {
                    address,
                    file,
                    line: here,
                });
            }
        }
        found.sort_by_key(|statement| statement.address);
        found
    }
}

/// The most units that sections of so many bytes are believed to have: an opened unit takes some hundred bytes of memory, and a
/// hostile one twelve of the file. Genuine units are longer than 32 bytes, but a file may have a few that are empty.
fn most_units(bytes: usize) -> usize {
    const MAX_UNITS: usize = 1 << 19;
    (bytes / 32 + 1024).min(MAX_UNITS)
}

fn load<'d>(source: &'d Source, elf: &Elf<'d>) -> Dwarf<'d> {
    let section = |id: gimli::SectionId| Slice::new(source.section(elf, id.name()), LittleEndian);
    let loaded = Dwarf::load(|id| Ok::<_, std::convert::Infallible>(section(id)));
    match loaded {
        Ok(dwarf) => dwarf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thirty-two megabytes of the shortest units would be 2.8 million, at 880 bytes each.
    #[test]
    fn units_take_no_more_than_four_hundred_megabytes() {
        assert!(most_units(usize::MAX) * size_of::<LazyUnit<'_>>() < 400 << 20);
        assert!(most_units(4 << 20) * size_of::<LazyUnit<'_>>() < 32 * (4 << 20));
        assert_eq!(most_units(0), 1024);
    }
}
