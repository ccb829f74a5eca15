//! Resolves the name of an entry by its own attributes, or by those of its origins.

use super::dies::{NamedEntry, Origin, ResolvedName, UnitFunctions};
use super::info::{DebugInfo, LazyUnit};
use crate::demangle::Name;
use std::sync::Arc;

/// The longest chain of origins that is followed: a copy, its abstract entry, a declaration, and
/// some more.
const MAX_ORIGINS: usize = 16;

/// An entry and its unit.
#[derive(Clone, Copy)]
struct EntryRef<'i, 'd> {
    info: &'i DebugInfo<'d>,
    unit: &'i LazyUnit<'d>,
    functions: &'i UnitFunctions<'d>,
    entry: &'i NamedEntry<'d>,
}

impl<'d> DebugInfo<'d> {
    /// Returns the name of entry `number` of a unit. It is resolved once for all instances.
    pub(super) fn name_of<'i>(
        &'i self,
        unit: &'i LazyUnit<'d>,
        functions: &'i UnitFunctions<'d>,
        number: u32,
    ) -> Option<&'i ResolvedName> {
        let named = functions.named.get(number as usize)?;
        let entry = EntryRef {
            info: self,
            unit,
            functions,
            entry: named,
        }
        .describing();
        let name: &ResolvedName = entry.entry.resolved.get_or_init(|| Box::new(entry.resolve()));
        Some(name)
    }

    fn entry_ref_at<'i>(&'i self, offset: usize) -> Option<EntryRef<'i, 'd>> {
        let unit = self.unit_of(offset)?;
        self.entry_ref_in(unit, offset - unit.extent.start)
    }

    fn entry_ref_in<'i>(&'i self, unit: &'i LazyUnit<'d>, offset: usize) -> Option<EntryRef<'i, 'd>> {
        let functions = self.functions_of(unit);
        Some(EntryRef {
            info: self,
            unit,
            functions,
            entry: functions.named_at(offset)?,
        })
    }
}

impl<'i, 'd> EntryRef<'i, 'd> {
    fn origin(self) -> Option<Self> {
        match self.entry.origin()? {
            Origin::Unit(offset) => self.info.entry_ref_in(self.unit, offset),
            Origin::File(offset) => self.info.entry_ref_at(self.unit.base.checked_add(offset)?),
            Origin::Supplementary(offset) => self.info.supplementary.as_deref()?.entry_ref_at(offset),
        }
    }

    /// Returns the first entry in the chain of origins that has its own attributes.
    fn describing(self) -> Self {
        let mut entries = std::iter::successors(Some(self), |entry| entry.origin()).take(MAX_ORIGINS);
        entries
            .find(|entry| entry.entry.has_own_attributes())
            .unwrap_or(self)
    }

    /// Follows the chain of origins without using other entries' resolved names, because origins
    /// may form a cycle.
    fn resolve(self) -> ResolvedName {
        let (mut name, mut declared) = (None, None);
        for entry in std::iter::successors(Some(self), |entry| entry.origin()).take(MAX_ORIGINS) {
            if !matches!(name, Some((_, true))) {
                let own = entry.entry.own_name(entry.functions);
                if name.is_none() || matches!(own, Some((_, true))) {
                    name = own.or(name);
                }
            }
            declared = declared.or_else(|| {
                let (file, line) = entry.entry.own_declaration()?;
                Some((entry.info.file(entry.unit, file)?, line))
            });
            if declared.is_some() && matches!(name, Some((_, true))) {
                break;
            }
        }
        let unknown: Arc<str> = "".into();
        let (name, has_linkage) = name.unwrap_or_else(|| {
            (
                Name {
                    readable: unknown.clone(),
                    linkage: unknown,
                },
                false,
            )
        });
        ResolvedName {
            name,
            has_linkage,
            declared,
        }
    }
}
