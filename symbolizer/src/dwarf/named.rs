//! Indexes functions and inlined copies by name. The index needs every unit, so it is built on
//! demand.

use super::dies::ResolvedName;
use super::info::DebugInfo;
use super::name_table::{NameTable, NamedCode};
use crate::names::{NameIndex, Query};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// An inlined copy of a function.
pub(crate) struct InlinedCode<'a> {
    pub name: &'a ResolvedName,
    /// Where the code begins to run.
    pub start: u64,
    pub ranges: &'a [Range<u64>],
}

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

    fn inlined_code(&self, code: NamedCode) -> Option<InlinedCode<'_>> {
        let unit = self.units.get(code.unit as usize)?;
        let functions = self.functions_of(unit);
        let copy = functions
            .inlined
            .get(code.number as usize)
            .filter(|_| code.inlined)?;
        let (name, ranges) = self.name_and_ranges(code)?;
        // GCC splits a function, and inlines the part into the rest. That is not another call.
        let around = copy
            .parent
            .and_then(|parent| functions.inlined.get(parent as usize));
        let around = around.and_then(|around| self.name_of(unit, functions, around.entry));
        let is_part = around.is_some_and(|around| around.name.linkage == name.name.linkage)
            && name
                .declared
                .as_ref()
                .is_some_and(|(_, line)| *line == copy.call_line);
        (!is_part).then_some(InlinedCode {
            name,
            start: copy.start,
            ranges,
        })
    }

    fn code_named(&self, name: &str, inlined: bool) -> impl Iterator<Item = (NamedCode, &ResolvedName)> {
        let query = Query::new(name);
        let index = self.all_names();
        let numbers: Vec<_> = index.index.candidates(&query).collect();
        let all = numbers
            .into_iter()
            .filter_map(|number| index.entries.get(number as usize));
        let all = all
            .filter(move |code| code.inlined == inlined)
            .filter_map(|code| Some((*code, self.name_and_ranges(*code)?.0)));
        all.filter(move |(_, found)| query.matches(&found.name))
    }

    /// Returns the start addresses of the physical functions with this name.
    pub fn starts_named(&self, name: &str) -> Vec<u64> {
        let mut starts: Vec<_> = self
            .code_named(name, false)
            .filter_map(|(code, _)| Some(self.name_and_ranges(code)?.1.first()?.start))
            .collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Returns the names of inlined functions that begin with `prefix`, at most `limit`.
    pub fn inlined_names(&self, prefix: &str, limit: usize) -> BTreeSet<Arc<str>> {
        let entries = self.all_names().entries.iter();
        let inlined = entries.filter(|code| code.inlined);
        let mut names = BTreeSet::new();
        for (name, _) in inlined.filter_map(|code| self.name_and_ranges(*code)) {
            if names.len() >= limit {
                break;
            }
            if name.name.readable.starts_with(prefix) {
                names.insert(Arc::clone(&name.name.readable));
            }
        }
        names
    }

    /// Returns the inlined copies of the functions with this name, in address order.
    pub fn inlined_named(&self, name: &str) -> Vec<InlinedCode<'_>> {
        let codes = self.code_named(name, true);
        in_address_order(codes.filter_map(|(code, _)| self.inlined_code(code)))
    }

    /// Returns the inlined copies of the functions whose demangled name matches, in address order.
    pub fn inlined_matching(&self, pattern: &regex::Regex) -> Vec<InlinedCode<'_>> {
        let codes = self.all_names().entries.iter().filter(|code| code.inlined);
        let copies = codes.filter_map(|code| self.inlined_code(*code));
        in_address_order(copies.filter(|copy| pattern.is_match(&copy.name.name.readable)))
    }
}

fn in_address_order<'a>(copies: impl Iterator<Item = InlinedCode<'a>>) -> Vec<InlinedCode<'a>> {
    let mut copies: Vec<_> = copies.collect();
    copies.sort_by_key(|copy| copy.ranges.iter().map(|range| range.start).min());
    copies
}
