//! The mappings of a process whose translations are stored.

use super::key::UnitKey;
use super::store::{CodeStore, EndedCache};
use super::unit::{IndexedUnit, Source};
use crate::PAGE;
use crate::ptrace::RawTid;
use crate::translate::block::BlockOptions;
use crate::translate::cache::Cache;
use crate::translate::code_pages::CodePages;
use backtrail_process::maps::Map;
use backtrail_process::memory;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The executable mappings of files from which code has run.
#[derive(Clone, Debug)]
pub(in crate::translate) struct StoredMappings {
    store: Arc<CodeStore>,
    options: BlockOptions,
    /// The end of each mapping by its start, with the key of its translations.
    mappings: BTreeMap<u64, (u64, UnitKey)>,
}

impl StoredMappings {
    pub(in crate::translate) fn new(store: &Arc<CodeStore>, options: BlockOptions) -> Self {
        Self {
            store: Arc::clone(store),
            options,
            mappings: BTreeMap::new(),
        }
    }

    /// Puts the stored translations of the mapping at `ip` into the cache, if code from it runs for
    /// the first time.
    pub(in crate::translate) fn place(
        &mut self,
        pid: RawTid,
        ip: u64,
        code: &mut CodePages,
        cache: &mut Cache,
    ) {
        let before = self.mappings.range(..=ip).next_back();
        if before.is_some_and(|(_, (end, _))| ip < *end) {
            return;
        }
        let Some((map, start)) = code.file_mapping(pid, ip) else {
            return;
        };
        let Some(key) = self.key(pid, &map, &start) else {
            return;
        };
        self.mappings.insert(map.start, (map.end, key));
        if let Some(unit) = self.store.find(key)
            && is_code_of(pid, &unit, &map)
        {
            // Without room, the program's code is translated.
            let _ = cache.place(&unit, map.start);
        }
    }

    /// Returns the key of a mapping. The start of a file contains the build id of most binaries.
    fn key(&self, pid: RawTid, map: &Map, start: &Map) -> Option<UnitKey> {
        let mut head = [0; PAGE as usize];
        if memory::read(pid, start.start, &mut head) != head.len() {
            return None;
        }
        let BlockOptions {
            calls,
            superblock,
            values,
            ..
        } = self.options;
        // Stubs for values use the vector instructions of the processor.
        let options = [
            calls,
            superblock,
            values,
            is_x86_feature_detected!("avx"),
            is_x86_feature_detected!("avx512f"),
        ]
        .map(u8::from);
        let place = [map.offset.to_le_bytes(), map.size().to_le_bytes()];
        Some(UnitKey::of(&[&head, &options, place.as_flattened()]))
    }

    /// Forgets the mappings with code in `range`, which has changed.
    pub(in crate::translate) fn forget(&mut self, range: &Range<u64>) {
        self.mappings
            .retain(|start, (end, _)| *end <= range.start || range.end <= *start);
    }

    /// Keeps the translations of a cache that is not used any more.
    pub(in crate::translate) fn keep(&self, cache: &mut Cache) {
        if !cache.has_new_blocks() {
            return;
        }
        let mappings = self.mappings.iter();
        self.store.add(EndedCache {
            options: self.options,
            remains: cache.take_remains(),
            mappings: mappings.map(|(start, (end, key))| (*key, *start..*end)).collect(),
        });
    }
}

/// Returns whether the mapping has the code that a unit was translated from.
fn is_code_of(pid: RawTid, unit: &IndexedUnit, map: &Map) -> bool {
    let mut memory = Vec::new();
    let mut ranges = unit.source.ranges();
    pieces(&unit.source).into_iter().all(|Piece { span, count }| {
        let start = map.start + u64::from(span.start);
        memory.clear();
        memory.resize((span.end - span.start) as usize, 0);
        if map.start + u64::from(span.end) > map.end || memory::read(pid, start, &mut memory) != memory.len()
        {
            return false;
        }
        ranges.by_ref().take(count).all(|(start, bytes)| {
            let from = (start - span.start) as usize;
            memory.get(from..from + bytes.len()) == Some(bytes)
        })
    })
}

/// Code that is read at once.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    span: Range<u32>,
    /// The number of its ranges.
    count: usize,
}

/// Joins the ranges of code into pieces, in their order.
fn pieces(source: &Source) -> Vec<Piece> {
    /// Smaller gaps between ranges are read too.
    const GAP: u32 = 2048;
    let mut pieces: Vec<Piece> = Vec::new();
    for (start, bytes) in source.ranges() {
        let end = start.saturating_add(bytes.len() as u32);
        match pieces.last_mut() {
            Some(last) if start - last.span.end < GAP => {
                last.span.end = end;
                last.count += 1;
            }
            _ => pieces.push(Piece {
                span: start..end,
                count: 1,
            }),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_read_at_once() {
        let source = Source {
            ranges: vec![(4, 2), (100, 3), (100 + 1 + 2048, 5)],
            bytes: vec![0; 5],
        };
        let piece = |span, count| Piece { span, count };
        assert_eq!(pieces(&source), [piece(4..101, 2), piece(2149..2151, 1)]);
    }
}
