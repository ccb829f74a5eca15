//! Compilation units: their root entry and the addresses they cover (DWARF 5, section 3.1).

use super::abbreviations::{AbbreviationTable, AbbreviationTables};
use super::budget::Budget;
use super::sections::{Dwarf, Slice};
use gimli::{
    AttributeValue, DebugLineOffset, DebuggingInformationEntry, EntriesRaw, Reader, UnitHeader, UnitOffset,
    UnitType,
};
use std::ops::Range;
use std::sync::Arc;

/// An open unit: only its root entry was read.
pub(crate) struct Unit<'d> {
    /// The unit of gimli, with the bases of indexed forms. Its line program is in `line_program`.
    /// It only has the abbreviations of the root entry; see [`Unit::entries`].
    pub gimli: gimli::Unit<Slice<'d>>,
    abbreviations: Arc<AbbreviationTable<'d>>,
    /// The offset of the unit's line program.
    pub line_program: Option<DebugLineOffset>,
    /// The ranges that the root entry states, or none.
    pub ranges: Vec<Range<u64>>,
    /// Whether the entries are in another file (`.dwo`).
    pub split: bool,
    /// The id that links a skeleton to its split unit.
    pub id: Option<u64>,
    /// The path of that file (`DW_AT_dwo_name`).
    pub file: Option<Slice<'d>>,
}

impl<'d> Unit<'d> {
    /// Returns whether the unit may state the types of functions.
    pub fn states_types(&self) -> bool {
        self.abbreviations.states_types()
    }

    /// Reads the root entry. Returns `None` if the unit is damaged.
    pub fn open(
        dwarf: &Dwarf<'d>,
        header: UnitHeader<Slice<'d>>,
        tables: &AbbreviationTables<'d>,
        budget: &Budget,
    ) -> Option<Self> {
        // A type unit has no code. It uses the line program of another unit for file names.
        let is_type = matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. });
        let table = tables.of(&header)?;
        let root = header
            .range_from(header.root_offset()..)
            .ok()?
            .read_uleb128()
            .ok()?;
        let abbreviations = table.with(root)?;
        let (encoding, file_type) = (header.encoding(), dwarf.file_type);
        let mut unit = gimli::Unit {
            abbreviations: Arc::clone(abbreviations),
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
        let mut entries = header.entries_raw(abbreviations, None).ok()?;
        let root = entries.read_abbreviation().ok()??;
        budget.spend(root.attributes().len())?;
        let mut attributes = Vec::new();
        entries.read_attributes(root.attributes(), &mut attributes).ok()?;

        // Bases must be read first, because indexed forms depend on them.
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
                (gimli::DW_AT_loclists_base, AttributeValue::DebugLocListsBase(base)) => {
                    unit.loclists_base = base;
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
            abbreviations: Arc::clone(table),
            line_program,
            ranges,
            split,
            id,
            file,
        })
    }
}

impl<'d> Unit<'d> {
    /// Iterates over the entries from the root, or from an offset. Returns `None` if they are
    /// damaged.
    pub fn entries(&self, from: Option<UnitOffset>) -> Option<EntriesRaw<'_, Slice<'d>>> {
        self.gimli
            .header
            .entries_raw(self.abbreviations.all()?, from)
            .ok()
    }

    /// Returns the entry at an offset.
    pub fn entry(&self, at: UnitOffset) -> Option<DebuggingInformationEntry<Slice<'d>>> {
        self.gimli.header.entry(self.abbreviations.all()?, at).ok()
    }
}

/// Returns the addresses of an entry: `DW_AT_ranges`, or `DW_AT_low_pc` and `DW_AT_high_pc` (DWARF
/// 5, section 2.17). Empty ranges and markers of discarded code are omitted.
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
