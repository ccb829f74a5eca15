//! Divides the code of a file into the parts of its functions, by DWARF, Go's own table and the
//! symbol tables.

use super::Tables;
use crate::code_part::{CodeGroup, CodePart, CodeParts, GroupSource, Segment};
use crate::dwarf::PartReader;
use backtrail_pt::Svma;
use object::LittleEndian;
use object::elf::PT_LOAD;
use object::read::elf::ProgramHeader;
use std::ops::Range;

impl<'d> Tables<'d> {
    pub fn code_groups(&self) -> Vec<CodeGroup> {
        let units = self.debug().map(|debug| debug.unit_pieces()).unwrap_or_default();
        let mut described: Vec<Range<u64>> = units.values().flatten().cloned().collect();
        described.sort_by_key(|piece| piece.start);
        let mut groups: Vec<CodeGroup> = units
            .into_iter()
            .map(|(unit, pieces)| CodeGroup {
                source: GroupSource::Unit(unit),
                pieces,
            })
            .collect();
        let (of_go, rest) = self.go_pieces(around(&described));
        groups.extend(of_go.into_iter().map(|pieces| CodeGroup {
            source: GroupSource::GoTable,
            pieces,
        }));
        groups.push(CodeGroup {
            source: GroupSource::SymbolTables,
            pieces: rest,
        });
        groups
    }

    pub fn code_parts(&self, group: &CodeGroup) -> CodeParts {
        let mut reader = match group.source {
            GroupSource::Unit(unit) => self.debug().and_then(|debug| debug.part_reader(unit)),
            GroupSource::GoTable => return self.go_code_parts(&group.pieces),
            GroupSource::SymbolTables => None,
        };
        let mut parts = Vec::new();
        for piece in &group.pieces {
            let mut at = piece.start;
            let functions = reader.as_ref().map(|reader| reader.functions_in(piece));
            for (range, number) in functions.unwrap_or_default() {
                let Some(reader) = &mut reader else { break };
                let Some(here) = reader.function(&range, number) else {
                    continue;
                };
                let function = self.described(&here);
                self.symbol_parts(at..range.start, Some(reader), &mut parts);
                at = range.end;
                let signature = reader.signature(number);
                parts.push(CodePart {
                    rows: reader.rows(&range),
                    inlined: reader.inlined(&range),
                    range: Svma(range.start)..Svma(range.end),
                    function: function.name,
                    linkage_name: function.linkage_name,
                    signature,
                });
            }
            self.symbol_parts(at..piece.end, reader.as_ref(), &mut parts);
        }
        CodeParts {
            files: reader.as_ref().map(PartReader::files).unwrap_or_default(),
            language: reader.as_ref().and_then(PartReader::language),
            parts,
        }
    }

    /// Adds the parts of the functions that only the symbol tables describe.
    pub(super) fn symbol_parts(
        &self,
        wanted: Range<u64>,
        reader: Option<&PartReader<'_, 'd>>,
        parts: &mut Vec<CodePart>,
    ) {
        for (range, number) in self.symbols.pieces_in(wanted) {
            let Some(function) = self.symbols.function(number) else {
                continue;
            };
            parts.push(CodePart {
                rows: reader.map(|reader| reader.rows(&range)).unwrap_or_default(),
                inlined: reader
                    .map(|reader| reader.inlined_names(&range))
                    .unwrap_or_default(),
                range: Svma(range.start)..Svma(range.end),
                function: function.name,
                linkage_name: function.linkage_name,
                signature: None,
            });
        }
    }

    pub fn exceeds_limits(&self) -> bool {
        self.debug().is_some_and(|debug| debug.exceeds_limits())
    }

    pub fn loaded_segments(&self) -> Vec<Segment> {
        let Ok(elf) = self.sources.module.elf() else {
            return Vec::new();
        };
        let headers = elf.elf_program_headers().iter();
        headers
            .filter(|header| header.p_type(LittleEndian) == PT_LOAD)
            .map(|header| {
                let (offset, size) = header.file_range(LittleEndian);
                Segment {
                    offset,
                    size,
                    address: header.p_vaddr(LittleEndian),
                }
            })
            .collect()
    }
}

/// Returns the addresses outside of sorted, disjoint pieces.
fn around(pieces: &[Range<u64>]) -> Vec<Range<u64>> {
    let starts = std::iter::once(0).chain(pieces.iter().map(|piece| piece.end));
    let ends = pieces.iter().map(|piece| piece.start).chain([u64::MAX]);
    starts
        .zip(ends)
        .map(|(start, end)| start..end)
        .filter(|gap| !gap.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::around;

    #[test]
    fn gaps_are_around_the_pieces() {
        assert_eq!(around(&[]), std::slice::from_ref(&(0..u64::MAX)));
        assert_eq!(around(&[3..5, 5..8, 9..10]), [0..3, 8..9, 10..u64::MAX]);
    }
}
