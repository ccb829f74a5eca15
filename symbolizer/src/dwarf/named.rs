//! Indexes functions and inlined copies by name. The index needs every unit, so it is built on
//! demand.

use super::dies::ResolvedName;
use super::info::DebugInfo;
use super::name_table::{NameTable, NamedCode};
use crate::names::{NameIndex, Query};
use std::ops::Range;

impl<'d> DebugInfo<'d> {
    fn all_names(&self) -> &NameTable {
        self.names.get_or_init(|| {
            let mut all = Vec::new();
            for (unit, lazy) in (0..).zip(&self.units) {
                let functions = self.functions_of(lazy);
                let physical = (0..functions.functions.len() as u32).map(|number| (number, false));
                let inlined = (0..functions.inlined.len() as u32).map(|number| (number, true));
                all.extend(physical.chain(inlined).map(|(number, inlined)| NamedCode {
                    unit,
                    number,
                    inlined,
                }));
            }
            all.retain(|code| self.name_and_ranges(*code).is_some());
            let names = all
                .iter()
                .filter_map(|code| Some(&self.name_and_ranges(*code)?.0.name));
            NameTable {
                index: NameIndex::new(names),
                entries: all,
            }
        })
    }

    fn name_and_ranges(&self, code: NamedCode) -> Option<(&ResolvedName, &[Range<u64>])> {
        let unit = self.units.get(code.unit as usize)?;
        let functions = self.functions_of(unit);
        let (entry, ranges) = if code.inlined {
            let copy = functions.inlined.get(code.number as usize)?;
            (copy.entry, &copy.ranges)
        } else {
            let function = functions.functions.get(code.number as usize)?;
            (function.entry, &function.parts)
        };
        Some((self.name_of(unit, functions, entry)?, ranges))
    }

    fn code_named(&self, name: &str, inlined: bool) -> impl Iterator<Item = (&ResolvedName, &[Range<u64>])> {
        let query = Query::new(name);
        let index = self.all_names();
        let numbers: Vec<_> = index.index.candidates(&query).collect();
        let all = numbers
            .into_iter()
            .filter_map(|number| index.entries.get(number as usize));
        let all = all
            .filter(move |code| code.inlined == inlined)
            .filter_map(|code| self.name_and_ranges(*code));
        all.filter(move |(found, _)| query.matches(&found.name))
    }

    /// Returns the start addresses of the physical functions with this name.
    pub fn starts_named(&self, name: &str) -> Vec<u64> {
        let mut starts: Vec<_> = self
            .code_named(name, false)
            .filter_map(|(_, parts)| Some(parts.first()?.start))
            .collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Returns the inlined copies of the functions with this name, in address order.
    pub fn inlined_named(&self, name: &str) -> Vec<(&ResolvedName, &[Range<u64>])> {
        let mut copies: Vec<_> = self.code_named(name, true).collect();
        copies.sort_by_key(|(_, ranges)| ranges.iter().map(|range| range.start).min());
        copies
    }
}
