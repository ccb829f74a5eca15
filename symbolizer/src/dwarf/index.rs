//! Indexes the names that a unit defines outside of functions: types, variables and enumerators.

use super::budget::Budget;
use super::sections::{Dwarf, Slice};
use super::unit::Unit;
use gimli::DebuggingInformationEntry;
use rustc_hash::FxHashMap;

/// The most scopes and the most bytes of a qualified name.
const MAX_SCOPES: usize = 64;
const MAX_QUALIFIED: usize = 4096;

/// The names of one unit.
#[derive(Default)]
pub(super) struct UnitIndex<'d> {
    scopes: Vec<NameScope<'d>>,
    /// The entries, in the order of the section.
    pub(super) named: Vec<IndexedName<'d>>,
    pub(super) by_name: FxHashMap<&'d [u8], Vec<u32>>,
}

struct NameScope<'d> {
    parent: Option<u32>,
    name: &'d [u8],
    /// Whether the names are also visible in the enclosing scope, as those of an unscoped
    /// enumeration.
    transparent: bool,
}

/// The kinds of named entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A structure, class, union or enumeration.
    Tagged,
    /// Any other type.
    Type,
    Variable,
    Enumerator {
        /// The offset of the enumeration from the start of the unit.
        enumeration: usize,
    },
}

/// A named entry.
pub(super) struct IndexedName<'d> {
    /// The offset from the start of the unit.
    pub(super) offset: usize,
    pub(super) kind: NameKind,
    name: &'d [u8],
    scope: Option<u32>,
    pub(super) declaration: bool,
}

/// An entry whose children are being read.
#[derive(Clone, Copy)]
struct OpenEntry {
    depth: isize,
    scope: Option<u32>,
    in_function: bool,
    enumeration: usize,
}

impl<'d> UnitIndex<'d> {
    pub(super) fn new(unit: &Unit<'d>, sections: &Dwarf<'d>, budget: &Budget) -> Self {
        let mut index = Self::default();
        let _ = index.read(unit, sections, budget);
        for (number, named) in (0..).zip(&index.named) {
            index.by_name.entry(named.name).or_default().push(number);
        }
        index
    }

    fn read(&mut self, unit: &Unit<'d>, sections: &Dwarf<'d>, budget: &Budget) -> Option<()> {
        let mut entries = unit.entries(None)?;
        let mut die = DebuggingInformationEntry::null();
        let mut open: Vec<OpenEntry> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            if !entries.read_entry(&mut die).ok()? {
                continue;
            }
            budget.spend(die.attrs().len())?;
            while open.last().is_some_and(|around| around.depth >= depth) {
                open.pop();
            }
            let around = open.last().copied().unwrap_or(OpenEntry {
                depth: -1,
                scope: None,
                in_function: false,
                enumeration: 0,
            });
            let here = self
                .entry((unit, sections, budget), &die, around)
                .unwrap_or(around);
            if die.has_children() {
                open.push(OpenEntry { depth, ..here });
            }
        }
        Some(())
    }

    /// Adds the name of an entry. Returns the state for its children, or `None` if it does not
    /// change.
    fn entry(
        &mut self,
        (unit, sections, budget): (&Unit<'d>, &Dwarf<'d>, &Budget),
        die: &DebuggingInformationEntry<Slice<'d>>,
        around: OpenEntry,
    ) -> Option<OpenEntry> {
        let kind = match die.tag() {
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type => Some(NameKind::Tagged),
            gimli::DW_TAG_base_type | gimli::DW_TAG_typedef | gimli::DW_TAG_unspecified_type => {
                Some(NameKind::Type)
            }
            gimli::DW_TAG_variable if !around.in_function => Some(NameKind::Variable),
            gimli::DW_TAG_member if die.has_attr(gimli::DW_AT_external) => Some(NameKind::Variable),
            gimli::DW_TAG_enumerator => Some(NameKind::Enumerator {
                enumeration: around.enumeration,
            }),
            gimli::DW_TAG_namespace | gimli::DW_TAG_subprogram => None,
            _ => return None,
        };
        let text = |name| {
            let text = sections.attr_string(&unit.gimli, die.attr_value(name)?).ok()?;
            budget.spend(text.len())?;
            (!text.is_empty()).then(|| text.slice())
        };
        let flag = |name| matches!(die.attr_value(name), Some(gimli::AttributeValue::Flag(true)));
        let mut name = text(gimli::DW_AT_name);
        let mut scope = around.scope;
        if let Some(gimli::AttributeValue::UnitRef(origin)) = die.attr_value(gimli::DW_AT_specification)
            && let Some(declared) = self.named_at(origin.0)
        {
            // An entity defined outside of its scope is declared there first.
            name = name.or(Some(declared.name));
            scope = declared.scope;
        }
        if die.tag() == gimli::DW_TAG_namespace {
            name = name.or(Some(b"(anonymous namespace)"));
        }
        if let (Some(kind), Some(name)) = (kind, name) {
            self.named.push(IndexedName {
                offset: die.offset().0,
                kind,
                name,
                scope,
                declaration: flag(gimli::DW_AT_declaration)
                    || (die.tag() == gimli::DW_TAG_member && !die.has_attr(gimli::DW_AT_const_value)),
            });
        }
        if matches!(kind, Some(NameKind::Variable | NameKind::Enumerator { .. })) {
            return None;
        }
        let inner = name.map(|name| {
            self.scopes.push(NameScope {
                parent: scope,
                name,
                transparent: die.tag() == gimli::DW_TAG_enumeration_type && !flag(gimli::DW_AT_enum_class),
            });
            self.scopes.len() as u32 - 1
        });
        Some(OpenEntry {
            scope: inner.or(scope),
            in_function: around.in_function || die.tag() == gimli::DW_TAG_subprogram,
            enumeration: die.offset().0,
            ..around
        })
    }

    pub(super) fn named_at(&self, offset: usize) -> Option<&IndexedName<'d>> {
        let at = self
            .named
            .binary_search_by_key(&offset, |named| named.offset)
            .ok()?;
        self.named.get(at)
    }

    pub(super) fn full_name(&self, named: &IndexedName<'d>) -> String {
        let mut parts = vec![String::from_utf8_lossy(named.name)];
        let (mut scope, mut length) = (named.scope, 0);
        while let Some(here) = scope.and_then(|number| self.scopes.get(number as usize)) {
            length += here.name.len();
            if parts.len() > MAX_SCOPES || length > MAX_QUALIFIED {
                break;
            }
            if !here.transparent {
                parts.push(String::from_utf8_lossy(here.name));
            }
            scope = here.parent;
        }
        parts.reverse();
        parts.join("::")
    }
}
