//! Functions and inlined copies by name: needs every unit, so it is made when first asked for.

use super::{DebugInfo, ResolvedName};
use crate::names::{NameIndex, Query};
use std::ops::Range;

/// An index of all that has code and a name in DWARF.
pub(super) struct AllNames {
    places: Vec<Place>,
    index: NameIndex,
}

/// A function or inlined copy.
#[derive(Clone, Copy)]
struct Place {
    unit: u32,
    number: u32,
    inlined: bool,
}

impl<'d> DebugInfo<'d> {
    fn all_names(&self) -> &AllNames {
        self.names.get_or_init(|| {
            let mut places = Vec::new();
            for (unit, lazy) in (0..).zip(&self.units) {
                let functions = self.functions_of(lazy);
                let physical = (0..functions.functions.len() as u32).map(|number| (number, false));
                let inlined = (0..functions.inlined.len() as u32).map(|number| (number, true));
                places.extend(physical.chain(inlined).map(|(number, inlined)| Place {
                    unit,
                    number,
                    inlined,
                }));
            }
            places.retain(|place| self.named_place(*place).is_some());
            let names = places
                .iter()
                .filter_map(|place| Some(&self.named_place(*place)?.0.name));
            AllNames {
                index: NameIndex::new(names),
                places,
            }
        })
    }

    fn named_place(&self, place: Place) -> Option<(&ResolvedName, &[Range<u64>])> {
        let unit = self.units.get(place.unit as usize)?;
        let functions = self.functions_of(unit);
        let (entry, ranges) = if place.inlined {
            let copy = functions.inlined.get(place.number as usize)?;
            (copy.entry, &copy.ranges)
        } else {
            let function = functions.functions.get(place.number as usize)?;
            (function.entry, &function.parts)
        };
        Some((self.name_of(unit, functions, entry)?, ranges))
    }

    fn places_named(
        &self,
        name: &str,
        inlined: bool,
    ) -> impl Iterator<Item = (&ResolvedName, &[Range<u64>])> {
        let query = Query::new(name);
        let all = self.all_names();
        let numbers: Vec<_> = all.index.candidates(&query).collect();
        let places = numbers
            .into_iter()
            .filter_map(|number| all.places.get(number as usize));
        let places = places
            .filter(move |place| place.inlined == inlined)
            .filter_map(|place| self.named_place(*place));
        places.filter(move |(found, _)| query.matches(&found.name))
    }

    /// The starts of the physical functions called `name`.
    pub fn starts_named(&self, name: &str) -> Vec<u64> {
        let mut starts: Vec<_> = self
            .places_named(name, false)
            .filter_map(|(_, parts)| Some(parts.first()?.start))
            .collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// The inlined copies of the functions called `name`, in address order.
    pub fn inlined_named(&self, name: &str) -> Vec<(&ResolvedName, &[Range<u64>])> {
        let mut copies: Vec<_> = self.places_named(name, true).collect();
        copies.sort_by_key(|(_, ranges)| ranges.iter().map(|range| range.start).min());
        copies
    }
}
