//! Reads the functions of one unit: their names, code and inlined calls (DWARF 5, section 3.3).

use super::budget::Budget;
use super::sections::{Dwarf, Slice};
use super::stated_name::stated;
use super::unit::{self, Unit};
use crate::code::CodeRanges;
use crate::demangle::Name;
use crate::model::Declaration;
use crate::range_map::RangeMap;
use gimli::{AttributeValue, DwAt};
use std::ops::Range;
use std::sync::OnceLock;

/// The functions of one unit.
#[derive(Default)]
pub(crate) struct UnitFunctions<'d> {
    /// All entries that can name a function, in the order of the section.
    pub named: Vec<NamedEntry<'d>>,
    pub functions: Vec<PhysicalFunction>,
    pub inlined: Vec<InlinedCall>,
    scopes: Vec<EnclosingScope<'d>>,
    /// Maps addresses to indexes of `functions`.
    pub function_map: RangeMap,
    /// Maps addresses to indexes of `inlined`: the innermost copy.
    pub inlined_map: RangeMap,
    /// Whether the location of some variable changes with the address. Then the unit was optimized.
    pub has_location_lists: bool,
}

/// A `DW_TAG_subprogram` or `DW_TAG_inlined_subroutine`.
pub(crate) struct NamedEntry<'d> {
    /// The offset from the start of the unit.
    offset: usize,
    name: Option<&'d [u8]>,
    linkage: Option<&'d [u8]>,
    /// The entry that this one is an instance of, or that it completes.
    origin: Option<Origin>,
    scope: Option<u32>,
    /// The file number and the line of the declaration.
    declared: Option<(u64, u32)>,
    /// The resolved name. The owner of the unit sets it, because `origin` may lead to another unit.
    /// Few of the entries are asked for.
    pub resolved: OnceLock<Box<ResolvedName>>,
}

/// The position of an entry's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Offset in the same unit.
    Unit(usize),
    /// Offset in `.debug_info` of the same file.
    File(usize),
    /// Offset in `.debug_info` of the supplementary file.
    Supplementary(usize),
}

/// The name of an entry.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedName {
    pub name: Name,
    /// Whether DWARF states the linkage name. Otherwise both names are the source's.
    pub has_linkage: bool,
    pub declared: Option<Declaration>,
}

/// A function that has its own code.
pub(crate) struct PhysicalFunction {
    /// An index into `named`.
    pub entry: u32,
    pub start: u64,
    /// The contiguous parts. The one that contains `start` comes first.
    pub parts: Vec<Range<u64>>,
}

/// An inlined copy of a function.
pub(crate) struct InlinedCall {
    /// An index into `named`.
    pub entry: u32,
    /// The enclosing inlined copy. `None` if this one is inlined into the function directly.
    pub parent: Option<u32>,
    /// Where the code begins to run: `DW_AT_entry_pc`, or else the start of the first part listed.
    pub start: u64,
    pub ranges: Vec<Range<u64>>,
    pub call_file: u64,
    pub call_line: u32,
    pub call_column: u32,
    /// `DW_AT_GNU_discriminator`.
    pub call_discriminator: u32,
}

/// A namespace, type or function that contains other names.
struct EnclosingScope<'d> {
    parent: Option<u32>,
    name: &'d [u8],
}

/// The most scopes and the most bytes of a qualified name. Many entries could share deep scopes
/// with long names.
const MAX_SCOPES: usize = 64;
const MAX_QUALIFIED: usize = 4096;

/// An entry whose children are being read.
#[derive(Clone, Copy)]
struct OpenEntry {
    depth: isize,
    scope: Option<u32>,
    inlined: Option<u32>,
}

impl<'d> UnitFunctions<'d> {
    /// Reads all entries of a unit. Entries after a damaged one are omitted.
    pub fn new(dwarf: &Dwarf<'d>, unit: &Unit<'d>, code: &CodeRanges, budget: &Budget) -> Self {
        let mut reader = Reader {
            dwarf,
            unit,
            code,
            budget,
            found: Self::default(),
        };
        let _ = reader.read();
        let mut found = reader.found;
        found.function_map = RangeMap::new(
            numbered(&found.functions)
                .flat_map(|(number, function)| pieces(&function.parts, number))
                .collect(),
        );
        found.inlined_map = RangeMap::new(
            numbered(&found.inlined)
                .flat_map(|(number, copy)| pieces(&copy.ranges, number))
                .collect(),
        );
        found
    }

    /// Returns the named entry at an offset from the start of the unit.
    pub fn named_at(&self, offset: usize) -> Option<&NamedEntry<'d>> {
        let number = self
            .named
            .binary_search_by_key(&offset, |entry| entry.offset)
            .ok()?;
        self.named.get(number)
    }

    /// Returns the name qualified by its namespaces and types, as in source code.
    fn qualified(&self, name: &[u8], mut scope: Option<u32>) -> String {
        let mut parts = vec![stated(name)];
        let mut length = 0;
        while let Some(here) = scope.and_then(|number| self.scopes.get(number as usize)) {
            length += here.name.len();
            if parts.len() > MAX_SCOPES || length > MAX_QUALIFIED {
                break;
            }
            parts.push(stated(here.name));
            scope = here.parent;
        }
        parts.reverse();
        parts.join("::")
    }
}

impl<'d> NamedEntry<'d> {
    /// Returns the offset from the start of the unit.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the entry that supplies the name, if this one does not.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Returns whether the entry itself has a name or a declaration.
    pub fn has_own_attributes(&self) -> bool {
        self.name.is_some() || self.linkage.is_some() || self.declared.is_some()
    }

    /// Returns the name that this entry states: the linkage name, or the qualified source name.
    pub fn own_name(&self, unit: &UnitFunctions<'d>) -> Option<(Name, bool)> {
        if let Some(linkage) = self.linkage {
            return Some((Name::of(linkage), true));
        }
        let name = self.name?;
        let linkage = stated(name).into();
        let readable = unit.qualified(name, self.scope).into();
        Some((Name { readable, linkage }, false))
    }

    /// Returns file number and line of the declaration, if this entry states both.
    pub fn own_declaration(&self) -> Option<(u64, u32)> {
        self.declared
    }
}

fn numbered<T>(items: &[T]) -> impl Iterator<Item = (u32, &T)> {
    (0..).zip(items)
}

fn pieces(ranges: &[Range<u64>], number: u32) -> impl Iterator<Item = (Range<u64>, u32)> {
    ranges.iter().map(move |range| (range.clone(), number))
}

struct Reader<'u, 'd> {
    dwarf: &'u Dwarf<'d>,
    unit: &'u Unit<'d>,
    code: &'u CodeRanges,
    budget: &'u Budget,
    found: UnitFunctions<'d>,
}

impl<'d> Reader<'_, 'd> {
    fn read(&mut self) -> Option<()> {
        let unit = self.unit;
        let mut entries = unit.entries(None)?;
        let mut attributes = Vec::new();
        let mut open: Vec<OpenEntry> = Vec::new();
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset().0, entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation().ok()? else {
                continue;
            };
            // Some forms take no bytes, so an entry could have any number of such attributes.
            self.budget.spend(abbreviation.attributes().len())?;
            while open.last().is_some_and(|around| around.depth >= depth) {
                open.pop();
            }
            let around = open.last().copied().unwrap_or(OpenEntry {
                depth: -1,
                scope: None,
                inlined: None,
            });
            let here = match abbreviation.tag() {
                gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine => {
                    entries
                        .read_attributes(abbreviation.attributes(), &mut attributes)
                        .ok()?;
                    let inlined = abbreviation.tag() == gimli::DW_TAG_inlined_subroutine;
                    self.function(offset, inlined, &attributes, around)
                }
                gimli::DW_TAG_namespace
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_enumeration_type => {
                    entries
                        .read_attributes(abbreviation.attributes(), &mut attributes)
                        .ok()?;
                    let name = self.text(&attributes, gimli::DW_AT_name);
                    let anonymous = abbreviation.tag() == gimli::DW_TAG_namespace;
                    let name = name.or(anonymous.then_some(&b"(anonymous namespace)"[..]));
                    OpenEntry {
                        scope: self.scope(name, around),
                        ..around
                    }
                }
                tag => {
                    if matches!(tag, gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter) {
                        self.found.has_location_lists |= abbreviation
                            .attributes()
                            .iter()
                            .any(|spec| is_location_list(spec, self.unit.gimli.header.version()));
                    }
                    entries.skip_attributes(abbreviation.attributes()).ok()?;
                    continue;
                }
            };
            if abbreviation.has_children() {
                open.push(OpenEntry { depth, ..here });
            }
        }
        Some(())
    }

    fn function(
        &mut self,
        offset: usize,
        inlined: bool,
        attributes: &[gimli::Attribute<Slice<'d>>],
        around: OpenEntry,
    ) -> OpenEntry {
        let name = self.text(attributes, gimli::DW_AT_name);
        let linkage = self.text(attributes, gimli::DW_AT_linkage_name);
        let number = |name| value(attributes, name).and_then(|value| value.udata_value());
        let file_number = |name| match value(attributes, name) {
            Some(AttributeValue::FileIndex(number)) => Some(number),
            other => other?.udata_value(),
        };
        let entry = self.found.named.len() as u32;
        let origin = value(attributes, gimli::DW_AT_abstract_origin)
            .or_else(|| value(attributes, gimli::DW_AT_specification))
            .and_then(origin);
        self.found.named.push(NamedEntry {
            offset,
            name,
            linkage: linkage.or_else(|| self.text(attributes, gimli::DW_AT_MIPS_linkage_name)),
            origin,
            scope: around.scope,
            declared: file_number(gimli::DW_AT_decl_file)
                .zip(number(gimli::DW_AT_decl_line).and_then(|line| line.try_into().ok())),
            resolved: OnceLock::new(),
        });
        let mut ranges = unit::ranges(self.dwarf, &self.unit.gimli, attributes, self.budget);
        ranges.retain(|range| self.code.contains(range.start));
        let address = |name| {
            let stated = value(attributes, name)?;
            self.dwarf.attr_address(&self.unit.gimli, stated).ok().flatten()
        };
        if inlined {
            let stated =
                address(gimli::DW_AT_entry_pc).filter(|at| ranges.iter().any(|range| range.contains(at)));
            let start = stated.or(ranges.first().map(|range| range.start));
            let copy = start.map(|start| {
                self.found.inlined.push(InlinedCall {
                    entry,
                    parent: around.inlined,
                    start,
                    ranges,
                    call_file: file_number(gimli::DW_AT_call_file).unwrap_or(0),
                    call_line: number(gimli::DW_AT_call_line)
                        .and_then(|line| line.try_into().ok())
                        .unwrap_or(0),
                    call_column: number(gimli::DW_AT_call_column)
                        .and_then(|column| column.try_into().ok())
                        .unwrap_or(0),
                    call_discriminator: number(gimli::DW_AT_GNU_discriminator)
                        .and_then(|discriminator| discriminator.try_into().ok())
                        .unwrap_or(0),
                });
                self.found.inlined.len() as u32 - 1
            });
            return OpenEntry {
                inlined: copy.or(around.inlined),
                ..around
            };
        }
        if !ranges.is_empty() {
            // A function with several parts starts at its `DW_AT_entry_pc`, or else in the first
            // part listed.
            let says = address(gimli::DW_AT_entry_pc)
                .or_else(|| address(gimli::DW_AT_low_pc))
                .and_then(|start| ranges.iter().position(|range| range.start == start));
            ranges.swap(0, says.unwrap_or(0));
            let start = ranges.first().map_or(0, |range| range.start);
            self.found.functions.push(PhysicalFunction {
                entry,
                start,
                parts: ranges,
            });
        }
        OpenEntry {
            scope: self.scope(name, around),
            inlined: None,
            ..around
        }
    }

    fn scope(&mut self, name: Option<&'d [u8]>, around: OpenEntry) -> Option<u32> {
        let Some(name) = name else { return around.scope };
        self.found.scopes.push(EnclosingScope {
            parent: around.scope,
            name,
        });
        Some(self.found.scopes.len() as u32 - 1)
    }

    fn text(&self, attributes: &[gimli::Attribute<Slice<'d>>], name: DwAt) -> Option<&'d [u8]> {
        let text = self
            .dwarf
            .attr_string(&self.unit.gimli, value(attributes, name)?)
            .ok()?;
        // Many entries could share one long string.
        self.budget.spend(text.len())?;
        (!text.is_empty()).then(|| text.slice())
    }
}

fn value<'d>(attributes: &[gimli::Attribute<Slice<'d>>], name: DwAt) -> Option<AttributeValue<Slice<'d>>> {
    attributes
        .iter()
        .find(|attribute| attribute.name() == name)
        .map(gimli::Attribute::value)
}

fn origin(value: AttributeValue<Slice>) -> Option<Origin> {
    match value {
        AttributeValue::UnitRef(offset) => Some(Origin::Unit(offset.0)),
        AttributeValue::DebugInfoRef(offset) => Some(Origin::File(offset.0)),
        AttributeValue::DebugInfoRefSup(offset) => Some(Origin::Supplementary(offset.0)),
        _ => None,
    }
}

/// Before DWARF 4, the constant forms also referred to location lists.
fn is_location_list(spec: &gimli::AttributeSpecification, version: u16) -> bool {
    spec.name() == gimli::DW_AT_location
        && match spec.form() {
            gimli::DW_FORM_sec_offset | gimli::DW_FORM_loclistx => true,
            gimli::DW_FORM_data4 | gimli::DW_FORM_data8 => version < 4,
            _ => false,
        }
}
