//! Finds the physical function and the inlined copies at an address.

use super::dies::{InlinedCall, PhysicalFunction, ResolvedName, UnitFunctions};
use super::info::{DebugInfo, LazyUnit};
use crate::SourceLocation;
use std::ops::Range;

/// A physical function as DWARF describes it.
pub(crate) struct FunctionAt<'i> {
    pub name: &'i ResolvedName,
    pub start: u64,
    /// The part that contains the requested address.
    pub part: Range<u64>,
    /// All parts; the one that contains `start` comes first.
    pub parts: &'i [Range<u64>],
    /// Whether the unit was optimized. Arguments are then in place at the entry.
    pub optimized: bool,
}

/// An inlined copy around an address.
pub(crate) struct InlinedAt<'i> {
    pub name: &'i ResolvedName,
    /// The lowest address of the copy.
    pub start: u64,
    /// The part that contains the requested address.
    pub part: Range<u64>,
    /// The source location of the inlined call.
    pub call: SourceLocation,
    /// The discriminator of the call's line.
    pub call_discriminator: u32,
}

impl<'d> DebugInfo<'d> {
    /// Returns the physical function that contains `at`.
    pub fn function_at(&self, at: u64) -> Option<FunctionAt<'_>> {
        let unit = self.unit_at(at)?;
        let functions = self.functions_of(unit);
        let function: &PhysicalFunction = functions
            .functions
            .get(functions.function_map.get(at)? as usize)?;
        Some(FunctionAt {
            name: self.name_of(unit, functions, function.entry)?,
            start: function.start,
            part: function.parts.iter().find(|part| part.contains(&at))?.clone(),
            parts: &function.parts,
            optimized: functions.has_location_lists,
        })
    }

    /// Returns the inlined copies around `at`, innermost first, at most `limit`.
    pub fn inlined_at(&self, at: u64, limit: usize) -> Vec<InlinedAt<'_>> {
        let Some(unit) = self.unit_at(at) else {
            return Vec::new();
        };
        let functions = self.functions_of(unit);
        let innermost = functions
            .inlined_map
            .get(at)
            .and_then(|number| functions.inlined.get(number as usize));
        let outwards = |copy: &&InlinedCall| functions.inlined.get(copy.parent? as usize);
        let chain = std::iter::successors(innermost, outwards).take(limit);
        chain
            .map_while(|copy| self.inlined_here(unit, functions, copy, at))
            .collect()
    }

    fn inlined_here<'i>(
        &'i self,
        unit: &'i LazyUnit<'d>,
        functions: &'i UnitFunctions<'d>,
        copy: &'i InlinedCall,
        at: u64,
    ) -> Option<InlinedAt<'i>> {
        Some(InlinedAt {
            name: self.name_of(unit, functions, copy.entry)?,
            start: copy.ranges.iter().map(|range| range.start).min()?,
            part: copy.ranges.iter().find(|range| range.contains(&at))?.clone(),
            call: SourceLocation {
                file: self.file(unit, copy.call_file).unwrap_or_default(),
                line: copy.call_line,
                column: copy.call_column,
            },
            call_discriminator: copy.call_discriminator,
        })
    }
}
