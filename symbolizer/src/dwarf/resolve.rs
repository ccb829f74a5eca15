//! What an entry is called: by its own attributes, or by those of the entry it is an instance of.

use super::dies::{NamedEntry, Origin, ResolvedName, UnitFunctions};
use super::{DebugInfo, LazyUnit};
use crate::demangle::Name;
use std::sync::Arc;

/// Origins are followed this far: a copy, its abstract entry, that one's declaration, and some.
const MAX_ORIGINS: usize = 16;

/// An entry, and where it is.
#[derive(Clone, Copy)]
struct Place<'i, 'd> {
    info: &'i DebugInfo<'d>,
    unit: &'i LazyUnit<'d>,
    functions: &'i UnitFunctions<'d>,
    entry: &'i NamedEntry<'d>,
}

impl<'d> DebugInfo<'d> {
    /// The name of entry `number` of a unit, found once for all instances of the function.
    pub(super) fn name_of<'i>(
        &'i self,
        unit: &'i LazyUnit<'d>,
        functions: &'i UnitFunctions<'d>,
        number: u32,
    ) -> Option<&'i ResolvedName> {
        let entry = functions.named.get(number as usize)?;
        let place = Place {
            info: self,
            unit,
            functions,
            entry,
        }
        .describing();
        Some(place.entry.resolved.get_or_init(|| place.resolve()))
    }

    fn place_at<'i>(&'i self, offset: usize) -> Option<Place<'i, 'd>> {
        let unit = self.unit_of(offset)?;
        self.place_in(unit, offset - unit.extent.start)
    }

    fn place_in<'i>(&'i self, unit: &'i LazyUnit<'d>, offset: usize) -> Option<Place<'i, 'd>> {
        let functions = self.functions_of(unit);
        Some(Place {
            info: self,
            unit,
            functions,
            entry: functions.named_at(offset)?,
        })
    }
}

impl<'i, 'd> Place<'i, 'd> {
    fn origin(self) -> Option<Self> {
        match self.entry.origin()? {
            Origin::Unit(offset) => self.info.place_in(self.unit, offset),
            Origin::File(offset) => self.info.place_at(self.unit.base.checked_add(offset)?),
            Origin::Supplementary(offset) => self.info.supplementary.as_deref()?.place_at(offset),
        }
    }

    /// The first along the chain of origins that says anything of its own.
    fn describing(self) -> Self {
        let mut places = std::iter::successors(Some(self), |place| place.origin()).take(MAX_ORIGINS);
        places.find(|place| place.entry.says_something()).unwrap_or(self)
    }

    /// Reads along the chain of origins, never through another entry's resolved name: origins may
    /// go in a circle.
    fn resolve(self) -> ResolvedName {
        let (mut name, mut declared) = (None, None);
        for place in std::iter::successors(Some(self), |place| place.origin()).take(MAX_ORIGINS) {
            if !matches!(name, Some((_, true))) {
                let own = place.entry.own_name(place.functions);
                if name.is_none() || matches!(own, Some((_, true))) {
                    name = own.or(name);
                }
            }
            declared = declared.or_else(|| {
                let (file, line) = place.entry.own_declaration()?;
                Some((place.info.file(place.unit, file)?, line))
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
