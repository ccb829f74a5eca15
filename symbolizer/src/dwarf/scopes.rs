//! Finds the variables in scope at an address (DWARF 5, sections 3.3 to 3.5 and 4.1).

use super::budget::Budget;
use super::entry::{Entry, budget};
use super::info::DebugInfo;
use super::language::language;
use super::types::constant;
use super::unit;
use crate::entry_id::EntryId;
use crate::location::LocationExpression;
use crate::variables::{Global, Scope, Variable, VariableLocation};
use gimli::AttributeValue;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The deepest nesting of blocks that is read. In Rust, each `let` begins a block.
const MAX_BLOCKS: usize = 1 << 12;
/// The most entries of a location list.
const MAX_LOCATIONS: usize = 1 << 16;
/// The largest constant in bytes.
const MAX_CONSTANT: usize = 1 << 16;

impl<'d> DebugInfo<'d> {
    /// Returns the scope at `at` in the inlined copy number `level`, 0 being the innermost. Beyond
    /// the copies, it is the scope of the physical function.
    pub fn scope_at(&self, at: u64, level: usize) -> Option<Scope> {
        let budget = budget();
        let unit = self.unit_at(at)?;
        let functions = self.functions_of(unit);
        let physical = functions
            .functions
            .get(functions.function_map.get(at)? as usize)?;
        let physical = self.function_entry(unit, functions.named.get(physical.entry as usize)?)?;
        let mut entry = physical.clone();
        if let Some(copy) = self.inlined_entries(at).get(level) {
            entry = self.entry(*copy)?;
        }
        let mut scope = Scope {
            frame_base: self.frame_base(&physical, at),
            language: language(&physical),
            function: Some(entry.id()),
            ..Scope::default()
        };
        let mut block = Some(entry);
        while let Some(here) = block.filter(|_| scope.blocks.len() < MAX_BLOCKS) {
            let (variables, inner) = self.block(&here, at, &mut scope.parameters, &budget);
            scope.blocks.push(variables);
            block = inner;
        }
        // The innermost block comes first.
        scope.blocks.reverse();
        Some(scope)
    }

    /// Returns the entries of the inlined copies around `at`, innermost first.
    fn inlined_entries(&self, at: u64) -> Vec<EntryId> {
        let Some(unit) = self.unit_at(at) else {
            return Vec::new();
        };
        let functions = self.functions_of(unit);
        let mut next = functions.inlined_map.get(at);
        let mut entries = Vec::new();
        while let Some(copy) = next.and_then(|number| functions.inlined.get(number as usize)) {
            let named = functions.named.get(copy.entry as usize);
            entries.extend(named.map(|named| EntryId {
                offset: unit.extent.start + named.offset(),
                supplementary: false,
            }));
            // A copy's index is greater than that of the copy around it.
            next = copy.parent.filter(|parent| Some(*parent) < next);
        }
        entries
    }

    fn function_entry(
        &self,
        unit: &super::info::LazyUnit<'d>,
        named: &super::dies::NamedEntry<'d>,
    ) -> Option<Entry<'_, 'd>> {
        self.entry(EntryId {
            offset: unit.extent.start.checked_add(named.offset())?,
            supplementary: false,
        })
    }

    /// Returns the entry of the physical function that contains `at`.
    pub(super) fn physical_entry(&self, at: u64) -> Option<Entry<'_, 'd>> {
        let unit = self.unit_at(at)?;
        let functions = self.functions_of(unit);
        let physical = functions
            .functions
            .get(functions.function_map.get(at)? as usize)?;
        self.function_entry(unit, functions.named.get(physical.entry as usize)?)
    }

    /// Returns that entry's id, to read it as a type.
    pub fn function_entry_at(&self, at: u64) -> Option<EntryId> {
        Some(self.physical_entry(at)?.id())
    }

    pub(super) fn frame_base(&self, function: &Entry<'_, 'd>, at: u64) -> Option<LocationExpression> {
        match function.location(gimli::DW_AT_frame_base, at) {
            VariableLocation::Expression(expression) => Some(expression),
            _ => None,
        }
    }

    /// Returns the variables of one block, and the nested block that contains `at`.
    fn block<'i>(
        &'i self,
        block: &Entry<'i, 'd>,
        at: u64,
        parameters: &mut Vec<Variable>,
        budget: &Budget,
    ) -> (Vec<Variable>, Option<Entry<'i, 'd>>) {
        let mut variables = Vec::new();
        let mut inner = None;
        let mut origins = BTreeSet::new();
        let mut children = block.children(budget);
        origins.extend(
            children
                .iter()
                .filter_map(|child| child.reference(gimli::DW_AT_abstract_origin)),
        );
        // Variables that this copy does not mention were optimized out, but are still in scope.
        let described = block
            .reference(gimli::DW_AT_abstract_origin)
            .and_then(|id| self.entry(id));
        let unsaid = described
            .map(|origin| origin.children(budget))
            .unwrap_or_default();
        children.extend(unsaid.into_iter().filter(|child| !origins.contains(&child.id())));
        for child in children {
            match child.tag() {
                gimli::DW_TAG_formal_parameter => parameters.extend(self.variable(&child, Some(at))),
                gimli::DW_TAG_variable => variables.extend(self.variable(&child, Some(at))),
                gimli::DW_TAG_lexical_block | gimli::DW_TAG_try_block | gimli::DW_TAG_catch_block => {
                    let gimli = &child.unit.unit.gimli;
                    let ranges = unit::ranges(child.sections(), gimli, child.attributes(), budget);
                    if inner.is_none() && ranges.iter().any(|range| range.contains(&at)) {
                        inner = Some(child);
                    }
                }
                _ => {}
            }
        }
        (variables, inner)
    }

    /// Reads a variable at the address `at`. With `None`, the variable must have one location
    /// everywhere.
    fn variable(&self, entry: &Entry<'_, 'd>, at: Option<u64>) -> Option<Variable> {
        let (mut name, mut type_entry, mut line) = (None, None, None);
        let mut location = VariableLocation::OptimizedOut;
        let mut artificial = false;
        for origin in entry.clone().with_origins(self) {
            name = name.or_else(|| match at {
                Some(_) => origin.name(),
                None => origin.full_name(),
            });
            type_entry = type_entry.or_else(|| origin.reference(gimli::DW_AT_type));
            line = line.or_else(|| origin.number(gimli::DW_AT_decl_line)?.try_into().ok());
            artificial |= origin.flag(gimli::DW_AT_artificial);
            if location == VariableLocation::OptimizedOut {
                location = origin.variable_location(at.unwrap_or(0));
            }
        }
        Some(Variable {
            name: name?,
            entry: entry.id(),
            type_entry,
            location,
            artificial,
            line,
        })
    }

    /// Returns the variable that an entry describes, if it has a value at `at`.
    pub fn variable_at(&self, id: EntryId, at: u64) -> Option<Variable> {
        self.variable(&self.entry(id)?, Some(at))
    }

    /// Returns the globals with this name, nearest first.
    pub fn globals_named(&self, name: &str, near: Option<EntryId>) -> Vec<Global> {
        use super::index::NameKind;
        let found = self.entries_named(name, near, |kind| {
            !matches!(kind, NameKind::Type | NameKind::Tagged)
        });
        let meanings = found.into_iter().filter_map(|(kind, id)| match kind {
            NameKind::Enumerator { enumeration } => Some(Global::Enumerator {
                entry: self.enumeration_of(id, enumeration)?,
                value: constant(&self.entry(id)?)?,
            }),
            _ => Some(Global::Variable(self.variable(&self.entry(id)?, None)?)),
        });
        meanings.collect()
    }

    /// Returns the definition of a static member, given its declaration.
    pub fn definition_of(&self, declaration: EntryId) -> Option<Variable> {
        let declared = self.entry(declaration)?;
        if declared.value(gimli::DW_AT_const_value).is_some()
            || declared.value(gimli::DW_AT_location).is_some()
        {
            return self.variable(&declared, None);
        }
        let name = declared.full_name()?;
        let found = self.entries_named(&name, Some(declaration), |kind| {
            kind == super::index::NameKind::Variable
        });
        let (_, id) = found.first()?;
        self.variable(&self.entry(*id)?, None)
    }
}

impl<'d> Entry<'_, 'd> {
    fn variable_location(&self, at: u64) -> VariableLocation {
        match self.value(gimli::DW_AT_const_value) {
            Some(AttributeValue::Block(bytes)) if bytes.len() <= MAX_CONSTANT => {
                return VariableLocation::Bytes(bytes.slice().into());
            }
            Some(AttributeValue::Block(_)) => {
                return VariableLocation::Unknown("the constant is too long");
            }
            Some(_) => {
                if let Some(text) = self.text(gimli::DW_AT_const_value) {
                    let bytes: Vec<u8> = text.iter().copied().chain([0]).take(MAX_CONSTANT).collect();
                    return VariableLocation::Bytes(bytes.into());
                }
                return constant(self).map_or(
                    VariableLocation::Unknown("the constant has an unknown form"),
                    VariableLocation::Constant,
                );
            }
            None => {}
        }
        if self.value(gimli::DW_AT_location).is_none() && self.flag(gimli::DW_AT_declaration) {
            return VariableLocation::DeclaredOnly;
        }
        self.location(gimli::DW_AT_location, at)
    }

    /// Returns the value of a location attribute at an address: an expression or a location list.
    pub fn location(&self, name: gimli::DwAt, at: u64) -> VariableLocation {
        let Some(value) = self.value(name) else {
            return VariableLocation::OptimizedOut;
        };
        if let Some(expression) = value.exprloc_value() {
            return self.expression(expression);
        }
        let (dwarf, unit) = (self.sections(), &self.unit.unit.gimli);
        let Ok(Some(mut list)) = dwarf.attr_locations(unit, value) else {
            return VariableLocation::Unknown("the location list is damaged");
        };
        // A default location holds where no other entry of the list does.
        let mut default = None;
        for _ in 0..MAX_LOCATIONS {
            match list.next() {
                Ok(Some(entry)) if (entry.range.begin, entry.range.end) == (0, u64::MAX) => {
                    default = Some(entry.data);
                }
                Ok(Some(entry)) if (entry.range.begin..entry.range.end).contains(&at) => {
                    return self.expression(entry.data);
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    return default.map_or(VariableLocation::OptimizedOut, |data| self.expression(data));
                }
                Err(_) => break,
            }
        }
        VariableLocation::Unknown("the location list is damaged")
    }

    fn expression(&self, expression: gimli::Expression<super::sections::Slice<'d>>) -> VariableLocation {
        if expression.0.is_empty() {
            return VariableLocation::OptimizedOut;
        }
        self.owned(expression).map_or(
            VariableLocation::Unknown("the location expression is too long"),
            VariableLocation::Expression,
        )
    }

    /// Returns the expression of an attribute, if it is one.
    pub fn location_expression(
        &self,
        value: AttributeValue<super::sections::Slice<'d>>,
    ) -> Option<LocationExpression> {
        self.owned(value.exprloc_value()?)
    }

    fn owned(&self, expression: gimli::Expression<super::sections::Slice<'d>>) -> Option<LocationExpression> {
        const MAX_LEN: usize = 1 << 16;
        let code: Arc<[u8]> = expression.0.slice().into();
        (code.len() <= MAX_LEN).then(|| LocationExpression {
            code,
            unit: self.id(),
        })
    }
}
