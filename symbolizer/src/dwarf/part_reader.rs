//! Reads all code of one unit, in parts: functions, rows of the line table, and inlined copies.

use super::dies::{InlinedCall, NamedEntry, Origin, UnitFunctions};
use super::functions::FunctionAt;
use super::info::{DebugInfo, LazyUnit};
use super::language::language;
use super::lines::LineTable;
use super::signatures::Signatures;
use crate::code_part::{FileNumber, InlinedPart, PartRow, Signature};
use crate::entry_id::EntryId;
use crate::types::Language;
use backtrail_pt::Svma;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The deepest inlining that is read. No compiler reaches it.
const MAX_INLINED: usize = 256;

/// The unit that is read.
pub(crate) struct PartReader<'i, 'd> {
    info: &'i DebugInfo<'d>,
    unit: &'i LazyUnit<'d>,
    functions: &'i UnitFunctions<'d>,
    table: Option<LineTable>,
    signatures: Signatures<'i, 'd>,
}

impl<'d> DebugInfo<'d> {
    /// Returns the addresses of each unit with code, in order and disjoint.
    pub fn unit_pieces(&self) -> BTreeMap<u32, Vec<Range<u64>>> {
        let mut units: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
        for (piece, unit) in self.map.pieces() {
            append(units.entry(unit).or_default(), piece);
        }
        units
    }

    /// Returns whether more work was asked for than genuine files need.
    pub fn exceeds_limits(&self) -> bool {
        self.budget.is_exceeded()
            || self
                .supplementary
                .as_ref()
                .is_some_and(|info| info.exceeds_limits())
    }

    /// Returns the reader of a unit.
    pub fn part_reader(&self, unit: u32) -> Option<PartReader<'_, 'd>> {
        let unit = self.units.get(unit as usize)?;
        let program = unit.program.and_then(|program| self.programs.get(program));
        Some(PartReader {
            info: self,
            unit,
            functions: self.functions_of(unit),
            table: program.map(|program| program.read_table(&self.code)),
            signatures: Signatures::new(self),
        })
    }
}

impl<'i, 'd> PartReader<'i, 'd> {
    /// Returns the paths of the unit's files, by number.
    pub fn files(&self) -> Vec<Arc<str>> {
        self.info.files_of(self.unit).to_vec()
    }

    /// Returns the source language of the unit.
    pub fn language(&self) -> Option<Language> {
        let root = self.unit.unit.gimli.header.root_offset().0;
        Some(language(&self.info.entry(self.id(root)?)?))
    }

    /// Returns the pieces of functions in `wanted`, with the numbers of the functions.
    pub fn functions_in(&self, wanted: &Range<u64>) -> Vec<(Range<u64>, u32)> {
        let mut found: Vec<(Range<u64>, u32)> = Vec::new();
        for (piece, number) in self.functions.function_map.pieces_in(wanted.clone()) {
            match found.last_mut() {
                Some((last, of)) if *of == number && last.end == piece.start => last.end = piece.end,
                _ => found.push((piece, number)),
            }
        }
        found
    }

    /// Returns the function with a number, and the name of it.
    pub fn function(&self, range: &Range<u64>, number: u32) -> Option<FunctionAt<'i>> {
        let function = self.functions.functions.get(number as usize)?;
        Some(FunctionAt {
            name: self.info.name_of(self.unit, self.functions, function.entry)?,
            start: function.start,
            part: range.clone(),
            parts: &function.parts,
            optimized: self.functions.has_location_lists,
        })
    }

    /// Returns the types in the declaration of the function with a number.
    pub fn signature(&mut self, number: u32) -> Option<Arc<Signature>> {
        let function = self.functions.functions.get(number as usize)?;
        let named = self.functions.named.get(function.entry as usize)?;
        self.signature_of(named)
    }

    fn signature_of(&mut self, named: &NamedEntry<'d>) -> Option<Arc<Signature>> {
        let id = self.id(named.offset())?;
        self.signatures.of(id)
    }

    /// Returns the rows of the line table in `range`.
    pub fn rows(&self, range: &Range<u64>) -> Vec<PartRow> {
        let files = self.info.files_of(self.unit);
        let is_file = |number: u32| files.get(number as usize).is_some_and(|file| !file.is_empty());
        let table = self.table.as_ref();
        table.map_or_else(Vec::new, |table| table.part_rows(range, is_file))
    }

    /// Returns the inlined copies in `range`, with the types of their declarations.
    pub fn inlined(&mut self, range: &Range<u64>) -> Vec<InlinedPart> {
        let (mut parts, entries) = self.inlined_copies(range);
        for (part, entry) in parts.iter_mut().zip(entries) {
            let named = self.functions.named.get(entry as usize);
            let origin = named.and_then(NamedEntry::origin);
            // Many copies have the same origin, which has the declaration.
            part.signature = match origin.and_then(|origin| self.origin_id(origin)) {
                Some(origin) => self.signatures.of_origin(origin),
                None => named.and_then(|named| self.signature_of(named)),
            };
        }
        parts
    }

    /// Returns the inlined copies in `range` without types.
    pub fn inlined_names(&self, range: &Range<u64>) -> Vec<InlinedPart> {
        self.inlined_copies(range).0
    }

    /// Returns the inlined copies in `range`, and their entries. The copies around an address are
    /// the chain of those around the innermost one.
    fn inlined_copies(&self, range: &Range<u64>) -> (Vec<InlinedPart>, Vec<u32>) {
        let mut found = FoundCopies::default();
        for (piece, innermost) in self.functions.inlined_map.pieces_in(range.clone()) {
            let known = found.nested.get(&innermost).copied();
            let mut next = known.or_else(|| self.find_chain(&piece, innermost, &mut found));
            while let Some(part) = next.and_then(|number| found.parts.get_mut(number)) {
                append_svma(&mut part.ranges, &piece);
                next = part.around;
            }
        }
        (found.parts, found.entries)
    }

    /// Adds the copies around a piece, and returns the index of the innermost one.
    fn find_chain(&self, piece: &Range<u64>, innermost: u32, found: &mut FoundCopies) -> Option<usize> {
        let mut chain = Vec::new();
        let mut next = Some(innermost);
        let mut is_nested = true;
        while let Some(number) = next.filter(|_| chain.len() < MAX_INLINED) {
            let Some(copy) = self.functions.inlined.get(number as usize) else {
                break;
            };
            if !copy.ranges.iter().any(|range| range.contains(&piece.start)) {
                break;
            }
            let inner: Option<&(u32, &InlinedCall)> = chain.last();
            is_nested &= inner.is_none_or(|(_, inner)| is_inside(&inner.ranges, &copy.ranges));
            chain.push((number, copy));
            // A copy's index is greater than that of the copy around it.
            next = copy.parent.filter(|parent| *parent < number);
        }
        // The chain ended before the outermost copy.
        is_nested &= next.is_none();
        let mut around = None;
        for (number, copy) in chain.into_iter().rev() {
            if let Some(known) = found.known.get(&(around, number)) {
                around = Some(*known);
                continue;
            }
            let name = self.info.name_of(self.unit, self.functions, copy.entry)?;
            found.entries.push(copy.entry);
            found.parts.push(InlinedPart {
                around,
                ranges: Vec::new(),
                function: name.name.readable.clone(),
                linkage_name: name.name.linkage.clone(),
                signature: None,
                call_file: self.call_file(copy.call_file),
                call_line: copy.call_line,
            });
            let here = found.parts.len() - 1;
            found.known.insert((around, number), here);
            around = Some(here);
        }
        if let Some(here) = around.filter(|_| is_nested) {
            found.nested.insert(innermost, here);
        }
        around
    }

    fn call_file(&self, number: u64) -> Option<FileNumber> {
        let number = u32::try_from(number).ok()?;
        let file = self.info.files_of(self.unit).get(number as usize)?;
        (!file.is_empty()).then_some(FileNumber(number))
    }

    fn origin_id(&self, origin: Origin) -> Option<EntryId> {
        let file = |offset| EntryId {
            offset,
            supplementary: false,
        };
        match origin {
            Origin::Unit(offset) => self.id(offset),
            Origin::File(offset) => self.unit.base.checked_add(offset).map(file),
            Origin::Supplementary(offset) => Some(EntryId {
                offset,
                supplementary: true,
            }),
        }
    }

    fn id(&self, offset: usize) -> Option<EntryId> {
        Some(EntryId {
            offset: self.unit.extent.start.checked_add(offset)?,
            supplementary: false,
        })
    }
}

/// The inlined copies that were found in a part.
#[derive(Default)]
struct FoundCopies {
    parts: Vec<InlinedPart>,
    /// The entries of the copies.
    entries: Vec<u32>,
    /// The indexes of copies, by the index of the copy around them and by their own number.
    known: FxHashMap<(Option<usize>, u32), usize>,
    /// The indexes of copies of which each address is in all copies around them.
    nested: FxHashMap<u32, usize>,
}

/// Returns whether each inner range is in one of the outer ranges.
fn is_inside(inner: &[Range<u64>], outer: &[Range<u64>]) -> bool {
    inner.iter().all(|inner| {
        let mut outer = outer.iter();
        outer.any(|outer| outer.start <= inner.start && inner.end <= outer.end)
    })
}

/// Adds a piece to sorted ones. It may continue the last one.
fn append(pieces: &mut Vec<Range<u64>>, piece: Range<u64>) {
    match pieces.last_mut() {
        Some(last) if last.end == piece.start => last.end = piece.end,
        _ => pieces.push(piece),
    }
}

fn append_svma(pieces: &mut Vec<Range<Svma>>, piece: &Range<u64>) {
    match pieces.last_mut() {
        Some(last) if last.end.0 == piece.start => last.end = Svma(piece.end),
        _ => pieces.push(Svma(piece.start)..Svma(piece.end)),
    }
}
