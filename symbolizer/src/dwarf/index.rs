//! Indexes the names that a unit defines outside of functions: types, variables and enumerators.

use super::budget::Budget;
use super::sections::{Dwarf, Slice};
use super::source_language::is_cpp_language;
use super::unit::Unit;
use gimli::DebuggingInformationEntry;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex};

/// The names of one unit.
#[derive(Default)]
pub(super) struct UnitIndex<'d> {
    scopes: Vec<NameScope<'d>>,
    /// The entries, in the order of the section.
    pub(super) named: Vec<IndexedName<'d>>,
    /// The entries by their names without template arguments.
    pub(super) by_name: FxHashMap<&'d [u8], Vec<u32>>,
    /// The names of templates' instances whose entries omit the arguments, by the offset of the
    /// entry.
    pub(super) instances: Mutex<FxHashMap<usize, Arc<str>>>,
}

/// A namespace, type or function that contains other names.
pub(super) struct NameScope<'d> {
    pub(super) parent: Option<u32>,
    pub(super) name: ScopedName<'d>,
    /// Whether the names are also visible in the enclosing scope, as those of an unscoped
    /// enumeration.
    pub(super) transparent: bool,
}

/// A name as the entry states it.
#[derive(Clone, Copy)]
pub(super) struct ScopedName<'d> {
    pub(super) text: &'d [u8],
    /// The offset of the entry, if it states template arguments and its name does not.
    pub(super) template: Option<usize>,
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
    pub(super) name: ScopedName<'d>,
    pub(super) scope: Option<u32>,
    pub(super) declaration: bool,
}

/// An entry whose children are being read.
#[derive(Clone, Copy)]
struct OpenIndexEntry {
    depth: isize,
    scope: Option<u32>,
    in_function: bool,
    enumeration: usize,
    /// The name of the entry itself, and the scope that it opens.
    own_name: Option<u32>,
    own_scope: Option<u32>,
}

impl<'d> UnitIndex<'d> {
    pub(super) fn new(unit: &Unit<'d>, sections: &Dwarf<'d>, budget: &Budget) -> Self {
        let mut index = Self::default();
        let _ = index.read(unit, sections, budget);
        for (number, named) in (0..).zip(&index.named) {
            let name = without_arguments(named.name.text);
            index.by_name.entry(name).or_default().push(number);
        }
        index
    }

    fn read(&mut self, unit: &Unit<'d>, sections: &Dwarf<'d>, budget: &Budget) -> Option<()> {
        let mut entries = unit.entries(None)?;
        let mut die = DebuggingInformationEntry::null();
        let mut open: Vec<OpenIndexEntry> = Vec::new();
        let mut is_cpp = false;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            if !entries.read_entry(&mut die).ok()? {
                continue;
            }
            budget.spend(die.attrs().len())?;
            while open.last().is_some_and(|around| around.depth >= depth) {
                open.pop();
            }
            let around = open.last().copied().unwrap_or(OpenIndexEntry {
                depth: -1,
                scope: None,
                in_function: false,
                enumeration: 0,
                own_name: None,
                own_scope: None,
            });
            if let Some(language) = die.attr_value(gimli::DW_AT_language) {
                is_cpp = is_cpp_language(language);
            }
            // In other languages, the names of variants of an enumeration have no arguments.
            if is_cpp && is_template_parameter(die.tag()) {
                self.mark_template(around);
            }
            let count = self.named.len();
            let here = self
                .entry((unit, sections, budget), &die, around)
                .unwrap_or(OpenIndexEntry {
                    own_name: None,
                    own_scope: None,
                    ..around
                });
            let here = OpenIndexEntry {
                own_name: (self.named.len() > count).then_some(count as u32),
                ..here
            };
            if die.has_children() {
                open.push(OpenIndexEntry { depth, ..here });
            }
        }
        Some(())
    }

    /// Notes that an entry has template arguments, unless they are in its name.
    fn mark_template(&mut self, entry: OpenIndexEntry) {
        let is_plain = |name: &ScopedName<'d>| !name.text.contains(&b'<');
        // The entry of the name is the last one that was opened.
        let own = entry.own_name.and_then(|own| self.named.get_mut(own as usize));
        let offset = own.map(|own| {
            let offset = own.offset;
            if is_plain(&own.name) {
                own.name.template = Some(offset);
            }
            offset
        });
        let scope = entry.own_scope.and_then(|own| self.scopes.get_mut(own as usize));
        if let Some(scope) = scope.filter(|scope| is_plain(&scope.name)) {
            scope.name.template = offset.or(Some(entry.enumeration));
        }
    }

    /// Returns the scope with this number.
    pub(super) fn scope(&self, number: u32) -> Option<&NameScope<'d>> {
        self.scopes.get(number as usize)
    }

    /// Adds the name of an entry. Returns the state for its children, or `None` if it does not
    /// change.
    fn entry(
        &mut self,
        (unit, sections, budget): (&Unit<'d>, &Dwarf<'d>, &Budget),
        die: &DebuggingInformationEntry<Slice<'d>>,
        around: OpenIndexEntry,
    ) -> Option<OpenIndexEntry> {
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
            name = name.or(Some(declared.name.text));
            scope = declared.scope;
        }
        if die.tag() == gimli::DW_TAG_namespace {
            name = name.or(Some(b"(anonymous namespace)"));
        }
        if let (Some(kind), Some(name)) = (kind, name) {
            self.named.push(IndexedName {
                offset: die.offset().0,
                kind,
                name: ScopedName {
                    text: name,
                    template: None,
                },
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
                name: ScopedName {
                    text: name,
                    template: None,
                },
                transparent: die.tag() == gimli::DW_TAG_enumeration_type && !flag(gimli::DW_AT_enum_class),
            });
            self.scopes.len() as u32 - 1
        });
        Some(OpenIndexEntry {
            scope: inner.or(scope),
            in_function: around.in_function || die.tag() == gimli::DW_TAG_subprogram,
            enumeration: die.offset().0,
            own_scope: inner,
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
}

/// Returns whether an entry states an argument of a template.
pub(super) fn is_template_parameter(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_template_type_parameter
            | gimli::DW_TAG_template_value_parameter
            | gimli::DW_TAG_GNU_template_template_param
            | gimli::DW_TAG_GNU_template_parameter_pack
    )
}

/// Returns a name without template arguments.
fn without_arguments(name: &[u8]) -> &[u8] {
    let name = name.strip_prefix(super::stated_name::MARK).unwrap_or(name);
    if name.starts_with(b"operator") {
        return name;
    }
    let end = name.iter().position(|byte| matches!(byte, b'<' | b'|'));
    match end {
        Some(end @ 1..) => name.get(..end).unwrap_or(name),
        _ => name,
    }
}
