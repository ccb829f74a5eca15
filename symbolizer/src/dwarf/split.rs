//! Adds split DWARF to its skeleton units (DWARF 5, section 7.3.2). It is in `.dwo` files, or in a
//! package (`.dwp`) made by `dwp`.

use super::abbreviations::AbbreviationTables;
use super::budget::Budget;
use super::info::{DebugInfo, LazyUnit, most_units};
use super::sections::{Dwarf, Slice};
use super::unit::Unit;
use crate::source::{Elf, Source, SplitFile};
use gimli::{LittleEndian, UnitHeader};
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock};

/// A skeleton unit: a reference to a unit in another file.
pub(crate) struct Skeleton<'d> {
    /// `DW_AT_dwo_name`.
    pub file: &'d [u8],
    /// `DW_AT_comp_dir`.
    pub directory: &'d [u8],
}

/// Returns the skeleton units of a file.
pub(crate) fn skeletons<'d>(source: &'d Source, elf: &Elf<'d>) -> Vec<Skeleton<'d>> {
    let dwarf = super::sections::load(source, elf);
    let mut headers = Vec::new();
    let mut all = dwarf.units();
    while let Ok(Some(header)) = all.next() {
        headers.push(header);
    }
    let tables = AbbreviationTables::new(source.section(elf, ".debug_abbrev"), &headers);
    let budget = Budget::new(source.dwarf_size(elf));
    let units = headers
        .into_iter()
        .filter_map(|header| Unit::open(&dwarf, header, &tables, &budget));
    units
        .filter_map(|unit| {
            Some(Skeleton {
                file: unit.file.filter(|_| unit.split)?.slice(),
                directory: unit.gimli.comp_dir.map(|path| path.slice()).unwrap_or_default(),
            })
        })
        .collect()
}

impl<'d> DebugInfo<'d> {
    /// Adds the units in `files` to their skeletons.
    pub fn add_split(&mut self, files: &'d [SplitFile]) {
        let mut skeletons: FxHashMap<u64, usize> = FxHashMap::default();
        for (number, unit) in self.units.iter().enumerate() {
            if let (Some(id), true) = (unit.unit.id, unit.unit.split) {
                skeletons.entry(id).or_insert(number);
            }
        }
        for file in files {
            self.add_file(file, &skeletons);
        }
    }

    fn add_file(&mut self, file: &'d SplitFile, skeletons: &FxHashMap<u64, usize>) {
        let Ok(elf) = file.source.elf() else { return };
        let section = |id: gimli::SectionId| {
            let name = id.dwo_name().unwrap_or_default();
            Slice::new(file.source.section(&elf, name), LittleEndian)
        };
        self.budget.add(file.source.dwarf_size(&elf));
        if !file.package {
            // Each type may have its own section.
            for kind in [gimli::SectionId::DebugInfo, gimli::SectionId::DebugTypes] {
                for units in file.source.sections(&elf, kind.dwo_name().unwrap_or_default()) {
                    let units_or_other = |id| match id {
                        gimli::SectionId::DebugInfo | gimli::SectionId::DebugTypes if id != kind => &[],
                        id if id == kind => units,
                        id => section(id).slice(),
                    };
                    let loaded = Dwarf::load(|id| {
                        Ok::<_, std::convert::Infallible>(Slice::new(units_or_other(id), LittleEndian))
                    });
                    let Ok(mut dwarf) = loaded;
                    dwarf.make_dwo(&self.dwarf);
                    self.add_units(dwarf, skeletons);
                }
            }
            return;
        }
        let empty = Slice::new(&[], LittleEndian);
        let Ok(package) = gimli::DwarfPackage::load(|id| Ok::<_, gimli::Error>(section(id)), empty) else {
            return;
        };
        for id in skeletons.keys() {
            if let Ok(Some(dwarf)) = package.find_cu(gimli::DwoId(*id), &self.dwarf) {
                self.add_units(dwarf, skeletons);
            }
        }
        for row in 1..=package.tu_index.unit_count() {
            if let Ok(dwarf) = package.tu_sections(row, &self.dwarf) {
                self.add_units(dwarf, skeletons);
            }
        }
    }

    /// Adds units of split sections. A unit of code replaces its skeleton. Units without a skeleton
    /// belong to another file.
    fn add_units(&mut self, dwarf: Dwarf<'d>, skeletons: &FxHashMap<u64, usize>) -> Option<()> {
        let mut headers: Vec<UnitHeader<Slice<'d>>> = Vec::new();
        let bytes = |section: Slice<'d>| section.slice().len();
        let most = most_units(
            bytes(*gimli::Section::reader(&dwarf.debug_info))
                .saturating_add(bytes(*gimli::Section::reader(&dwarf.debug_types))),
        );
        let mut all = dwarf.units();
        while let Some(header) = all.next().ok().flatten().filter(|_| headers.len() < most) {
            headers.push(header);
        }
        let mut all = dwarf.type_units();
        while let Some(header) = all.next().ok().flatten().filter(|_| headers.len() < most) {
            headers.push(header);
        }
        // Units of a package may share one table.
        let abbreviations = gimli::Section::reader(&dwarf.debug_abbrev).slice();
        self.budget.spend(abbreviations.len())?;
        let tables = AbbreviationTables::new(abbreviations, &headers);
        let dwarf = Arc::new(dwarf);
        // Units are ordered by position, and each file follows the previous ones.
        let base = self.units.last().map_or(0, |unit| unit.extent.end);
        let types = base.checked_add(gimli::Section::reader(&dwarf.debug_info).len())?;
        let first = self.units.len();
        for header in headers {
            let start = match (header.debug_info_offset(), header.debug_types_offset()) {
                (Some(offset), _) => base.checked_add(offset.0)?,
                (None, Some(offset)) => types.checked_add(offset.0)?,
                (None, None) => continue,
            };
            let extent = start..start.checked_add(header.length_including_self())?;
            let Some(mut unit) = Unit::open(&dwarf, header, &tables, &self.budget) else {
                continue;
            };
            let is_type = matches!(
                unit.gimli.header.type_(),
                gimli::UnitType::Type { .. } | gimli::UnitType::SplitType { .. }
            );
            unit.split = false;
            if !is_type {
                let number = unit.id.and_then(|id| skeletons.get(&id));
                let Some(skeleton) = number.and_then(|number| self.units.get_mut(*number)) else {
                    continue;
                };
                if !skeleton.unit.split {
                    continue;
                }
                // The skeleton states bases, addresses and the line program.
                unit.gimli.copy_relocated_attributes(&skeleton.unit.gimli);
                unit.gimli.comp_dir = skeleton.unit.gimli.comp_dir;
                unit.ranges = std::mem::take(&mut skeleton.unit.ranges);
                unit.line_program = skeleton.unit.line_program.take();
                skeleton.unit.gimli.name = None;
                skeleton.unit.split = false;
            }
            self.units.push(LazyUnit {
                unit,
                split: Some(Arc::clone(&dwarf)),
                base,
                extent,
                program: None,
                functions: OnceLock::new(),
                index: OnceLock::new(),
            });
        }
        self.sign(first);
        Some(())
    }
}
