//! Reads debugging information entries, and follows their references, with bounded work.

use super::budget::Budget;
use super::info::{DebugInfo, LazyUnit};
use super::sections::{Dwarf, Slice};
use crate::entry_id::EntryId;
use gimli::{AttributeValue, DebuggingInformationEntry, DwAt, DwTag};
use std::sync::Arc;

/// The longest chain of origins that is followed.
pub(super) const MAX_ORIGINS: usize = 16;
/// The most attributes that one query reads. Genuine queries read a fraction of that.
const MAX_ATTRIBUTES: u64 = 1 << 22;
/// The most children of an entry that are read.
const MAX_CHILDREN: usize = 1 << 16;

/// A parsed entry and its unit.
#[derive(Clone)]
pub(super) struct Entry<'i, 'd> {
    pub info: &'i DebugInfo<'d>,
    pub unit: &'i LazyUnit<'d>,
    /// Whether `info` belongs to the supplementary file.
    pub supplementary: bool,
    die: DebuggingInformationEntry<Slice<'d>>,
}

/// Returns the budget of one query.
pub(super) fn budget() -> Budget {
    Budget::of(MAX_ATTRIBUTES)
}

impl<'d> DebugInfo<'d> {
    /// Returns the entry at an offset in `.debug_info` of this file or the supplementary one.
    pub(super) fn entry(&self, id: EntryId) -> Option<Entry<'_, 'd>> {
        let info = match id.supplementary {
            true => self.supplementary.as_deref()?,
            false => self,
        };
        Entry::at(info, info.unit_of(id.offset)?, id.supplementary, id.offset)
    }

    /// Returns the root entry of the unit of a source file, matched by the last components of its
    /// path.
    pub fn unit_of_file(&self, wanted: &str) -> Option<EntryId> {
        let unit = self.units.iter().find(|unit| {
            let name = unit.unit.gimli.name;
            name.is_some_and(|name| super::paths::ends_with(&String::from_utf8_lossy(name.slice()), wanted))
        })?;
        Some(EntryId {
            offset: unit.extent.start,
            supplementary: false,
        })
    }

    /// Returns whether two entries belong to the same unit.
    pub fn same_unit(&self, one: EntryId, other: EntryId) -> bool {
        let unit = |id: EntryId| {
            let unit = self.unit_of(id.offset).filter(|_| !id.supplementary)?;
            Some(unit.extent.start)
        };
        unit(one).is_some_and(|start| unit(other) == Some(start))
    }

    /// Returns the unit that contains an offset in `.debug_info`.
    pub(super) fn unit_of(&self, offset: usize) -> Option<&LazyUnit<'d>> {
        let next = self.units.partition_point(|unit| unit.extent.start <= offset);
        self.units
            .get(next.checked_sub(1)?)
            .filter(|unit| unit.extent.contains(&offset))
    }
}

impl<'i, 'd> Entry<'i, 'd> {
    fn at(
        info: &'i DebugInfo<'d>,
        unit: &'i LazyUnit<'d>,
        supplementary: bool,
        offset: usize,
    ) -> Option<Self> {
        let offset = gimli::UnitOffset(offset.checked_sub(unit.extent.start)?);
        let mut entries = unit.unit.entries(Some(offset))?;
        let mut die = DebuggingInformationEntry::null();
        let real = entries.read_entry(&mut die).ok()?;
        real.then_some(Self {
            info,
            unit,
            supplementary,
            die,
        })
    }

    /// Returns the root entry of the unit.
    pub fn root(&self) -> Option<Self> {
        let start = self.unit.unit.gimli.header.root_offset().0;
        Self::at(
            self.info,
            self.unit,
            self.supplementary,
            self.unit.extent.start.checked_add(start)?,
        )
    }

    pub fn id(&self) -> EntryId {
        EntryId {
            offset: self.unit.extent.start.saturating_add(self.die.offset().0),
            supplementary: self.supplementary,
        }
    }

    /// Returns the offset from the start of the unit.
    pub fn unit_offset(&self) -> usize {
        self.die.offset().0
    }

    /// Returns the sections of the unit's file.
    pub fn sections(&self) -> &Dwarf<'d> {
        self.info.sections(self.unit)
    }

    pub fn tag(&self) -> DwTag {
        self.die.tag()
    }

    pub fn value(&self, name: DwAt) -> Option<AttributeValue<Slice<'d>>> {
        self.die.attr_value(name)
    }

    pub fn attributes(&self) -> &[gimli::Attribute<Slice<'d>>] {
        self.die.attrs()
    }

    pub fn flag(&self, name: DwAt) -> bool {
        matches!(self.value(name), Some(AttributeValue::Flag(true)))
    }

    pub fn number(&self, name: DwAt) -> Option<u64> {
        self.value(name)?.udata_value()
    }

    pub fn text(&self, name: DwAt) -> Option<&'d [u8]> {
        let text = self
            .sections()
            .attr_string(&self.unit.unit.gimli, self.value(name)?)
            .ok()?;
        (!text.is_empty()).then(|| text.slice())
    }

    pub fn name(&self) -> Option<Arc<str>> {
        self.text(gimli::DW_AT_name)
            .map(|name| super::stated_name::stated(name).into())
    }

    /// Returns the entry that an attribute refers to.
    pub fn reference(&self, name: DwAt) -> Option<EntryId> {
        let (offset, supplementary) = match self.value(name)? {
            AttributeValue::UnitRef(offset) => {
                (self.unit.extent.start.checked_add(offset.0)?, self.supplementary)
            }
            AttributeValue::DebugInfoRef(offset) => {
                (self.unit.base.checked_add(offset.0)?, self.supplementary)
            }
            AttributeValue::DebugInfoRefSup(offset) => (offset.0, true),
            AttributeValue::DebugTypesRef(signature) => {
                (*self.info.signatures.get(&signature.0)?, self.supplementary)
            }
            _ => return None,
        };
        Some(EntryId {
            offset,
            supplementary,
        })
    }

    /// Returns the entry that this one is an instance of, or that it completes.
    pub fn origin(&self, whole: &'i DebugInfo<'d>) -> Option<Self> {
        let id = self
            .reference(gimli::DW_AT_abstract_origin)
            .or_else(|| self.reference(gimli::DW_AT_specification))?;
        whole.entry(id)
    }

    /// Returns this entry, then its origins.
    pub fn with_origins(self, whole: &'i DebugInfo<'d>) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |entry| entry.origin(whole)).take(MAX_ORIGINS)
    }

    /// Returns the children. Those after a damaged one, or beyond the budget, are omitted.
    pub fn children(&self, budget: &Budget) -> Vec<Self> {
        let mut children = Vec::new();
        if self.die.has_children() {
            self.read_children(budget, &mut children);
        }
        children
    }

    fn read_children(&self, budget: &Budget, children: &mut Vec<Self>) -> Option<()> {
        let mut entries = self.unit.unit.entries(Some(self.die.offset()))?;
        let mut die = DebuggingInformationEntry::null();
        entries.read_entry(&mut die).ok()?;
        while !entries.is_empty() && entries.next_depth() > 0 && children.len() < MAX_CHILDREN {
            if entries.next_depth() > 1 {
                if let Some(abbreviation) = entries.read_abbreviation().ok()? {
                    budget.spend(abbreviation.attributes().len().saturating_add(1))?;
                    entries.skip_attributes(abbreviation.attributes()).ok()?;
                }
                continue;
            }
            if entries.read_entry(&mut die).ok()? {
                budget.spend(die.attrs().len().saturating_add(1))?;
                children.push(Self {
                    die: die.clone(),
                    ..self.clone()
                });
            }
        }
        Some(())
    }
}
