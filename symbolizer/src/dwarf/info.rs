//! All units of a file: their addresses, line programs and functions.

use super::abbreviations::AbbreviationTables;
use super::budget::Budget;
use super::dies::UnitFunctions;
use super::index::UnitIndex;
use super::lines::{self, LineProgram, LineTable};
use super::name_table::NameTable;
use super::sections::{Dwarf, load};
use super::unit::Unit;
use crate::code::CodeRanges;
use crate::range_map::RangeMap;
use crate::source::{Elf, Source};
use gimli::UnitType;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// All units of a file.
pub(crate) struct DebugInfo<'d> {
    pub(super) dwarf: Dwarf<'d>,
    /// The units in the order of the sections; `.debug_types` counts as following `.debug_info`.
    pub(super) units: Vec<LazyUnit<'d>>,
    /// Maps type signatures to indexes of `units`.
    pub(super) signatures: FxHashMap<u64, usize>,
    pub(super) programs: Vec<LineProgram<'d>>,
    /// Maps addresses to indexes of `units`.
    pub(super) map: RangeMap,
    pub(super) code: CodeRanges,
    /// The supplementary file, which only supplies names.
    pub(super) supplementary: Option<Box<DebugInfo<'d>>>,
    pub(super) budget: Budget,
    /// The number of line table rows that may still be computed.
    pub(super) line_rows: Budget,
    pub(super) names: OnceLock<NameTable>,
    /// Maps the last component of a file's path to the units with that file.
    pub(super) with_file: OnceLock<BTreeMap<Box<str>, Vec<usize>>>,
}

/// A unit whose functions and names are read on demand.
pub(super) struct LazyUnit<'d> {
    pub(super) unit: Unit<'d>,
    /// The split DWARF sections with the entries. `None` if they are in the file itself.
    pub(super) split: Option<Arc<Dwarf<'d>>>,
    /// The position of the unit's `.debug_info` section in the concatenated sections.
    pub(super) base: usize,
    /// The unit's range in the concatenated `.debug_info` and `.debug_types`.
    pub(super) extent: Range<usize>,
    /// An index into `programs`.
    pub(super) program: Option<usize>,
    pub(super) functions: OnceLock<Box<UnitFunctions<'d>>>,
    pub(super) index: OnceLock<Box<UnitIndex<'d>>>,
}

impl<'d> DebugInfo<'d> {
    /// Reads the root entry of every unit in `source`. Returns `None` if there is no DWARF.
    pub fn new(source: &'d Source, elf: &Elf<'d>, code: CodeRanges) -> Option<Self> {
        let dwarf = load(source, elf);
        let mut headers = Vec::new();
        let types = source.section(elf, ".debug_info").len();
        let most = most_units(types.saturating_add(source.section(elf, ".debug_types").len()));
        let mut all = dwarf.units();
        // A damaged header ends the list, because the next one cannot be found.
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

    /// Registers the types that the units from this index on describe.
    pub(super) fn sign(&mut self, from: usize) {
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
                // All units with the same signature describe the same type.
                self.signatures
                    .entry(type_signature.0)
                    .or_insert(unit.extent.start.saturating_add(type_offset.0));
            }
        }
    }

    /// Finds the line programs and covered addresses of all units. Call it after the last unit was
    /// added.
    pub fn complete(&mut self, lines: &'d [u8]) {
        self.find_programs(lines);
        self.map_addresses();
    }

    /// Sets the supplementary file, which supplies names.
    pub fn set_supplementary(&mut self, source: &'d Source, elf: &Elf<'d>) {
        self.dwarf.set_sup(load(source, elf));
        self.supplementary = Self::new(source, elf, CodeRanges::default()).map(|mut info| {
            info.complete(source.section(elf, ".debug_line"));
            Box::new(info)
        });
    }

    /// Assigns each line program the bytes up to the next one, and its index to its units.
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

    /// Units that do not state their ranges cover those of their line table.
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

    /// Returns the number of units whose split DWARF file (`.dwo`) was not found.
    pub fn split_units(&self) -> usize {
        self.units.iter().filter(|unit| unit.unit.split).count()
    }

    /// Returns the sections that contain the entries of a unit.
    pub(super) fn sections<'i>(&'i self, unit: &'i LazyUnit<'d>) -> &'i Dwarf<'d> {
        unit.split.as_deref().unwrap_or(&self.dwarf)
    }

    /// Returns whether a unit describes the code at an address.
    pub fn covers(&self, at: u64) -> bool {
        self.unit_at(at).is_some()
    }

    pub(super) fn unit_at(&self, at: u64) -> Option<&LazyUnit<'d>> {
        self.units.get(self.map.get(at)? as usize)
    }

    pub(super) fn functions_of<'i>(&'i self, unit: &'i LazyUnit<'d>) -> &'i UnitFunctions<'d> {
        unit.functions.get_or_init(|| {
            Box::new(UnitFunctions::new(
                self.sections(unit),
                &unit.unit,
                &self.code,
                &self.budget,
            ))
        })
    }

    pub(super) fn program<'i>(&'i self, unit: &LazyUnit<'d>) -> Option<(&'i LineTable, &'i [Arc<str>])> {
        let program = self.programs.get(unit.program?)?;
        Some((
            program.table(&self.code, &self.line_rows),
            program.files(&self.dwarf, &unit.unit.gimli, &self.budget),
        ))
    }

    pub(super) fn file(&self, unit: &LazyUnit<'d>, number: u64) -> Option<Arc<str>> {
        let program = self.programs.get(unit.program?)?;
        let files = program.files(&self.dwarf, &unit.unit.gimli, &self.budget);
        files.get(usize::try_from(number).ok()?).cloned()
    }

    /// Returns one unit for each line program, with its index.
    pub(super) fn units_with_programs(&self) -> impl Iterator<Item = (usize, &LazyUnit<'d>)> {
        let mut seen = BTreeSet::new();
        let units = self.units.iter().enumerate();
        units.filter(move |(_, unit)| unit.program.is_some_and(|program| seen.insert(program)))
    }

    /// Returns the paths of the files in a unit's line program, by number.
    pub(super) fn files_of(&self, unit: &LazyUnit<'d>) -> &[Arc<str>] {
        let program = unit.program.and_then(|program| self.programs.get(program));
        program.map_or(&[], |program| {
            program.files(&self.dwarf, &unit.unit.gimli, &self.budget)
        })
    }
}

/// Returns the most units that sections of this size may have. An open unit takes some hundred
/// bytes of memory, but a malicious one only twelve bytes of the file. Genuine units are longer
/// than 32 bytes, although a file may have a few empty ones.
pub(super) fn most_units(bytes: usize) -> usize {
    const MAX_UNITS: usize = 1 << 19;
    (bytes / 32 + 1024).min(MAX_UNITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the limit, 32 MB of the shortest units would be 2.8 million units of 880 bytes each.
    #[test]
    fn memory_of_units_is_bounded() {
        assert!(most_units(usize::MAX) * size_of::<LazyUnit<'_>>() < 400 << 20);
        assert!(most_units(4 << 20) * size_of::<LazyUnit<'_>>() < 32 * (4 << 20));
        assert_eq!(most_units(0), 1024);
    }
}
