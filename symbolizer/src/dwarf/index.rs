//! What a unit defines under a name outside of functions: types, variables, enumerators; and the full names of
//! its types.

use super::entry::Entry;
use super::{DebugInfo, LazyUnit};
use crate::types::EntryId;
use gimli::DebuggingInformationEntry;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The scopes farther out than this are left out of a name, and those that make it longer than this in bytes.
const MAX_SCOPES: usize = 64;
const MAX_QUALIFIED: usize = 4096;
/// So many units that define a name are looked at.
const MAX_FOUND: usize = 64;

/// The names of one unit.
#[derive(Default)]
pub(super) struct UnitIndex<'d> {
    scopes: Vec<NameScope<'d>>,
    /// In the order of the section.
    named: Vec<Named<'d>>,
    by_name: FxHashMap<&'d [u8], Vec<u32>>,
}

struct NameScope<'d> {
    parent: Option<u32>,
    name: &'d [u8],
    /// Names of an enumeration that is no `enum class` are also those of the scope around it.
    transparent: bool,
}

/// What a name can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A structure, class, union or enumeration.
    Tagged,
    /// Any other type.
    Type,
    Variable,
    Enumerator {
        /// The offset of its enumeration from the start of the unit.
        enumeration: usize,
    },
}

struct Named<'d> {
    /// From the start of the unit.
    offset: usize,
    kind: NameKind,
    name: &'d [u8],
    scope: Option<u32>,
    declaration: bool,
}

/// An entry that is open while its children are read.
#[derive(Clone, Copy)]
struct Open {
    depth: isize,
    scope: Option<u32>,
    in_function: bool,
    enumeration: usize,
}

impl<'d> UnitIndex<'d> {
    fn new(info: &DebugInfo<'d>, unit: &LazyUnit<'d>) -> Self {
        let mut index = Self::default();
        let _ = index.read(info, unit);
        for (number, named) in (0..).zip(&index.named) {
            index.by_name.entry(named.name).or_default().push(number);
        }
        index
    }

    fn read(&mut self, info: &DebugInfo<'d>, unit: &LazyUnit<'d>) -> Option<()> {
        let mut entries = unit.unit.entries(None)?;
        let mut die = DebuggingInformationEntry::null();
        let mut open: Vec<Open> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            if !entries.read_entry(&mut die).ok()? {
                continue;
            }
            info.budget.spend(die.attrs().len())?;
            while open.last().is_some_and(|around| around.depth >= depth) {
                open.pop();
            }
            let around = open.last().copied().unwrap_or(Open {
                depth: -1,
                scope: None,
                in_function: false,
                enumeration: 0,
            });
            let here = self.entry(info, unit, &die, around).unwrap_or(around);
            if die.has_children() {
                open.push(Open { depth, ..here });
            }
        }
        Some(())
    }

    /// Notes what an entry names, and gives what holds for its children; `None`: the same as for itself.
    fn entry(
        &mut self,
        info: &DebugInfo<'d>,
        unit: &LazyUnit<'d>,
        die: &DebuggingInformationEntry<gimli::EndianSlice<'d, gimli::LittleEndian>>,
        around: Open,
    ) -> Option<Open> {
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
            let text = info
                .sections(unit)
                .attr_string(&unit.unit.gimli, die.attr_value(name)?)
                .ok()?;
            info.budget.spend(text.len())?;
            (!text.is_empty()).then(|| text.slice())
        };
        let flag = |name| matches!(die.attr_value(name), Some(gimli::AttributeValue::Flag(true)));
        let mut name = text(gimli::DW_AT_name);
        let mut scope = around.scope;
        if let Some(gimli::AttributeValue::UnitRef(origin)) = die.attr_value(gimli::DW_AT_specification)
            && let Some(declared) = self.named_at(origin.0)
        {
            // What is defined outside of its scope is declared in it, before.
            name = name.or(Some(declared.name));
            scope = declared.scope;
        }
        if die.tag() == gimli::DW_TAG_namespace {
            name = name.or(Some(b"(anonymous namespace)"));
        }
        if let (Some(kind), Some(name)) = (kind, name) {
            self.named.push(Named {
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
        Some(Open {
            scope: inner.or(scope),
            in_function: around.in_function || die.tag() == gimli::DW_TAG_subprogram,
            enumeration: die.offset().0,
            ..around
        })
    }

    fn named_at(&self, offset: usize) -> Option<&Named<'d>> {
        let at = self
            .named
            .binary_search_by_key(&offset, |named| named.offset)
            .ok()?;
        self.named.get(at)
    }

    fn full_name(&self, named: &Named<'d>) -> String {
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

impl<'d> DebugInfo<'d> {
    fn index_of<'i>(&self, unit: &'i LazyUnit<'d>) -> &'i UnitIndex<'d> {
        unit.index.get_or_init(|| Box::new(UnitIndex::new(self, unit)))
    }

    /// What `wanted`, a name or a path of names, can mean, definitions only: those of the unit around `near`
    /// first. The last components of a path are enough; where some entry has the very path, those that have more are left out.
    pub(super) fn entries_named(
        &self,
        wanted: &str,
        near: Option<EntryId>,
        is_wanted: impl Fn(NameKind) -> bool,
    ) -> Vec<(NameKind, EntryId)> {
        let wanted = wanted.trim_start_matches("::");
        let last = last_component(wanted);
        let near = near
            .filter(|near| !near.supplementary)
            .and_then(|near| self.unit_of(near.offset))
            .map(|unit| unit.extent.start);
        let mut found = Vec::new();
        let first = self.units.iter().filter(|unit| Some(unit.extent.start) == near);
        let others = self.units.iter().filter(|unit| Some(unit.extent.start) != near);
        let mut exact = false;
        for unit in first.chain(others) {
            let index = self.index_of(unit);
            for number in index.by_name.get(last.as_bytes()).into_iter().flatten() {
                let Some(named) = index.named.get(*number as usize) else {
                    continue;
                };
                if named.declaration || !is_wanted(named.kind) || found.len() >= MAX_FOUND {
                    continue;
                }
                let full = index.full_name(named);
                // The source cannot name an anonymous namespace.
                let said = full.replace("(anonymous namespace)::", "");
                let same = full == wanted || said == wanted;
                let ends = |full: &str| {
                    full.strip_suffix(wanted)
                        .is_some_and(|before| before.ends_with("::"))
                };
                let ends = ends(&full) || ends(&said);
                if !(same || ends && !exact) {
                    continue;
                }
                if same && !exact {
                    exact = true;
                    found.clear();
                }
                let id = |offset| EntryId {
                    offset: unit.extent.start + offset,
                    supplementary: false,
                };
                found.push((named.kind, id(named.offset)));
            }
        }
        found
    }

    /// The enumeration of an enumerator that [`Self::entries_named`] found.
    pub(super) fn enumeration_of(&self, enumerator: EntryId, enumeration: usize) -> Option<EntryId> {
        let unit = self.unit_of(enumerator.offset)?;
        Some(EntryId {
            offset: unit.extent.start.checked_add(enumeration)?,
            supplementary: enumerator.supplementary,
        })
    }
}

impl<'d> Entry<'_, 'd> {
    /// Its name with the scopes around it.
    pub fn full_name(&self) -> Option<Arc<str>> {
        let index = self.info.index_of(self.unit);
        match index.named_at(self.unit_offset()) {
            Some(named) => Some(index.full_name(named).into()),
            None => self.name(),
        }
    }
}

/// Without the path before it; the arguments of a template belong to the name.
fn last_component(path: &str) -> &str {
    let mut depth = 0u32;
    let mut start = 0;
    let mut previous = ' ';
    for (at, character) in path.char_indices() {
        match character {
            '<' => depth += 1,
            '>' if previous != '-' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && previous == ':' => start = at + 1,
            _ => {}
        }
        previous = character;
    }
    path.get(start..).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::last_component;

    #[test]
    fn arguments_belong_to_the_name() {
        assert_eq!(last_component("x"), "x");
        assert_eq!(last_component("a::b::x"), "x");
        assert_eq!(last_component("a::vec<b::c, d::e>"), "vec<b::c, d::e>");
        assert_eq!(last_component("fn() -> a::b"), "b");
        assert_eq!(last_component(""), "");
    }
}
