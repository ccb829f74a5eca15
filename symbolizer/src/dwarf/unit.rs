//! Compilation units: their root entry and the addresses they cover (DWARF 5, section 3.1).

use super::budget::Budget;
use super::{Dwarf, Slice};
use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugLineOffset, LittleEndian, UnitHeader,
    UnitType,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A unit that was opened: its root entry is read, the rest is not.
pub(crate) struct Unit<'d> {
    /// Knows the bases that indexed forms count from. Its line program is left out: see `line_program`.
    pub gimli: gimli::Unit<Slice<'d>>,
    /// Where the unit's line program is.
    pub line_program: Option<DebugLineOffset>,
    /// What the root entry says it covers; empty where it does not say.
    pub ranges: Vec<Range<u64>>,
    /// The entries are in another file (`.dwo`).
    pub split: bool,
    /// What names the unit that is in another file, both here and there.
    pub id: Option<u64>,
    /// The path of that file (`DW_AT_dwo_name`).
    pub file: Option<Slice<'d>>,
}

/// Abbreviation tables, each parsed once and only up to where the next one starts: a hostile file
/// could let many units start within one long table.
pub(crate) struct AbbreviationTables(BTreeMap<usize, Option<Arc<Abbreviations>>>);

impl AbbreviationTables {
    pub fn new(section: &[u8], headers: &[UnitHeader<Slice>]) -> Self {
        let offsets: BTreeMap<usize, Option<Arc<Abbreviations>>> = headers
            .iter()
            .map(|header| (header.debug_abbrev_offset().0, None))
            .collect();
        let ends: Vec<_> = offsets.keys().skip(1).copied().chain([section.len()]).collect();
        let parse = |start: usize, end: usize| {
            let table = DebugAbbrev::new(section.get(start..end)?, LittleEndian);
            table.abbreviations(DebugAbbrevOffset(0)).ok().map(Arc::new)
        };
        Self(
            offsets
                .into_keys()
                .zip(ends)
                .map(|(start, end)| (start, parse(start, end)))
                .collect(),
        )
    }
}

impl<'d> Unit<'d> {
    /// Reads the root entry. `None` for damaged units.
    pub fn open(
        dwarf: &Dwarf<'d>,
        header: UnitHeader<Slice<'d>>,
        tables: &AbbreviationTables,
        budget: &Budget,
    ) -> Option<Self> {
        // A type unit has no code, and shares the line program of another unit for the names of files.
        let is_type = matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. });
        let abbreviations = tables.0.get(&header.debug_abbrev_offset().0)?.clone()?;
        let (encoding, file_type) = (header.encoding(), dwarf.file_type);
        let mut unit = gimli::Unit {
            abbreviations: abbreviations.clone(),
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file_type),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, file_type),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
            line_program: None,
            dwo_id: None,
            header,
        };
        let mut entries = header.entries_raw(&abbreviations, None).ok()?;
        let root = entries.read_abbreviation().ok()??;
        budget.spend(root.attributes().len())?;
        let mut attributes = Vec::new();
        entries.read_attributes(root.attributes(), &mut attributes).ok()?;

        // The bases first: forms before them may be indexes that count from them.
        let mut id = match header.type_() {
            UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id.0),
            _ => None,
        };
        let (mut line_program, mut split) = (None, matches!(header.type_(), UnitType::Skeleton(_)));
        for attribute in &attributes {
            match (attribute.name(), attribute.value()) {
                (gimli::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                    unit.str_offsets_base = base;
                }
                (
                    gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base,
                    AttributeValue::DebugAddrBase(base),
                ) => {
                    unit.addr_base = base;
                }
                (
                    gimli::DW_AT_rnglists_base | gimli::DW_AT_GNU_ranges_base,
                    AttributeValue::DebugRngListsBase(base),
                ) => {
                    unit.rnglists_base = base;
                }
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) if !is_type => {
                    line_program = Some(offset);
                }
                (gimli::DW_AT_GNU_dwo_name, _) => split = true,
                (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(stated)) => id = Some(stated.0),
                _ => {}
            }
        }
        let mut file = None;
        for attribute in &attributes {
            match attribute.name() {
                gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name => {
                    file = dwarf.attr_string(&unit, attribute.value()).ok();
                }
                gimli::DW_AT_name => unit.name = dwarf.attr_string(&unit, attribute.value()).ok(),
                gimli::DW_AT_comp_dir => unit.comp_dir = dwarf.attr_string(&unit, attribute.value()).ok(),
                gimli::DW_AT_low_pc => {
                    unit.low_pc = dwarf
                        .attr_address(&unit, attribute.value())
                        .ok()
                        .flatten()
                        .unwrap_or(0);
                }
                _ => {}
            }
        }
        let ranges = ranges(dwarf, &unit, &attributes, budget);
        Some(Self {
            gimli: unit,
            line_program,
            ranges,
            split,
            id,
            file,
        })
    }
}

/// The addresses of an entry: `DW_AT_ranges`, or `DW_AT_low_pc` and `DW_AT_high_pc` (DWARF 5,
/// section 2.17). Empty ranges and the marks of discarded code are left out.
pub(crate) fn ranges<'d>(
    dwarf: &Dwarf<'d>,
    unit: &gimli::Unit<Slice<'d>>,
    attributes: &[gimli::Attribute<Slice<'d>>],
    budget: &Budget,
) -> Vec<Range<u64>> {
    let value = |name| {
        attributes
            .iter()
            .find(|attribute| attribute.name() == name)
            .map(gimli::Attribute::value)
    };
    let address = |value| dwarf.attr_address(unit, value).ok().flatten();
    let mut found = Vec::new();
    if let Some(mut list) =
        value(gimli::DW_AT_ranges).and_then(|list| dwarf.attr_ranges(unit, list).ok().flatten())
    {
        while let Ok(Some(range)) = list.next() {
            if budget.spend(1).is_none() {
                return Vec::new();
            }
            found.push(range.begin..range.end);
        }
    } else if let Some(low) = value(gimli::DW_AT_low_pc).and_then(address) {
        let high = match value(gimli::DW_AT_high_pc) {
            Some(AttributeValue::Udata(size)) => low.checked_add(size),
            Some(high) => address(high),
            None => None,
        };
        found.extend(high.map(|high| low..high));
    }
    found.retain(|range| !range.is_empty() && !unit.header.is_tombstone_address(range.start));
    found
}
