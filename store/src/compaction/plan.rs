//! The choice of segments for a compaction: small ones first, within the limit of memory.

use super::CompactionOptions;
use crate::Result;
use crate::content::Content;
use crate::segment::{SegmentEntry, TableKind};
use crate::segment_reader::SegmentReader;

/// A segment that is larger than all smaller ones together by this factor waits for more of them.
/// Each sample is rewritten few times so.
const RATIO: u64 = 8;
/// The memory of an open input: a batch of each column and its rows.
const INPUT: u64 = 3 << 20;
/// The memory of the hashes of pushes, for each byte of their text. There are the text of an input,
/// the set of all, and the text of the new segment.
const HASHES: u64 = 4;
/// The memory of the new segment's buffers: a row group, and parts on their way.
const OUTPUT: u64 = 56 << 20;

/// Returns the segments that a compaction may replace, the smallest first.
pub(super) fn candidates(mut listed: Vec<SegmentEntry>, options: &CompactionOptions) -> Vec<SegmentEntry> {
    listed.sort_by_key(|entry| (entry.samples.rows, entry.id));
    let mut rows = 0u64;
    let mut taken: Vec<SegmentEntry> = Vec::new();
    for entry in listed {
        let total = rows.saturating_add(entry.samples.rows);
        let is_much_larger = entry.samples.rows > rows.saturating_mul(RATIO);
        if total > options.max_rows || (taken.len() >= options.min_segments && is_much_larger) {
            break;
        }
        rows = total;
        taken.push(entry);
    }
    taken
}

/// The memory that a compaction may need.
pub(super) struct Budget {
    limit: u64,
    /// The bytes of the inputs that are open.
    inputs: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, inputs: 0 }
    }

    /// Returns whether a further input fits, and reserves its memory. The estimate of its tables
    /// is that of tables that share nothing with those in memory.
    pub(super) async fn admits(
        &mut self,
        reader: &SegmentReader,
        entry: &SegmentEntry,
        content: &Content,
    ) -> Result<bool> {
        let samples = reader.file(entry, TableKind::Samples).await?;
        let columns: Vec<usize> = (0..18).collect();
        let group = (0..samples.groups()).map(|group| samples.bytes_of(group, &columns).0);
        // Per stack, the id in the new segment stays. Per context too.
        let ids = (entry.stacks.rows + entry.contexts.rows) * 4;
        let mut stays = INPUT + group.max().unwrap_or(0) + ids;
        let mut tables = 0;
        for (kind, per_byte) in [
            // An id of a frame has 4 bytes, and becomes a node of the tree of stacks at worst.
            (TableKind::Stacks, 12),
            (TableKind::Frames, 4),
            (TableKind::Contexts, 4),
        ] {
            let file = reader.file(entry, kind).await?;
            if kind == TableKind::Contexts {
                stays += file.entry_bytes() as u64 * HASHES;
            }
            let plain = (0..file.groups()).map(|group| file.bytes_of(group, &columns).1);
            tables += plain.sum::<u64>() * per_byte + file.rows() * 96;
        }
        let needed = OUTPUT + self.inputs + stays + memory(content) + tables;
        let fits = needed <= self.limit;
        if fits {
            self.inputs += stays;
        }
        Ok(fits)
    }
}

/// Returns an estimate of the memory of contents.
fn memory(content: &Content) -> u64 {
    let profile = &content.profile;
    let texts: usize = profile.strings.iter().map(|(_, text)| text.len() + 48).sum();
    let labels: usize = content
        .contexts
        .iter()
        .flat_map(|(_, labels)| labels.iter())
        .map(|(key, value)| key.len() + value.len() + 64)
        .sum();
    let bytes = texts
        + labels
        // A node of the tree.
        + profile.stacks.len() * 40
        + profile.frames.len() * 80
        + profile.lines.len() * 96
        + profile.functions.len() * 64
        + (content.contexts.len() + profile.threads.len() + content.origins.len()) * 160;
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_id_filter::BuildIdFilter;
    use crate::hour::Hour;
    use crate::segment::{FileSummary, SegmentId};

    fn entry(rows: u64) -> SegmentEntry {
        let file = FileSummary {
            rows,
            bytes: rows,
            footer_crc: 0,
        };
        SegmentEntry {
            id: SegmentId::random().unwrap(),
            hour: Hour(0),
            level: 0,
            first: 0,
            last: 0,
            samples: file,
            stacks: file,
            frames: file,
            contexts: file,
            services: None,
            hosts: None,
            events: None,
            build_ids: BuildIdFilter::default(),
            notes: Vec::new(),
            origin_notes: crate::OriginNotes::default(),
            idle: crate::IdleCounts::default(),
        }
    }

    fn chosen(rows: &[u64], options: CompactionOptions) -> Vec<u64> {
        let entries = rows.iter().map(|rows| entry(*rows)).collect();
        let taken = candidates(entries, &options);
        taken.iter().map(|entry| entry.samples.rows).collect()
    }

    #[test]
    fn large_segment_waits_for_enough_small_ones() {
        let options = CompactionOptions::default();
        assert_eq!(chosen(&[1000, 10, 10, 10, 10], options), [10, 10, 10, 10]);
        assert_eq!(chosen(&[300, 10, 10, 10, 10], options), [10, 10, 10, 10, 300]);
        // Few small segments are merged with the large one.
        assert_eq!(chosen(&[1000, 10], options), [10, 1000]);
    }

    #[test]
    fn new_segment_has_a_limited_number_of_samples() {
        let options = CompactionOptions {
            max_rows: 25,
            ..CompactionOptions::default()
        };
        assert_eq!(chosen(&[10, 10, 10], options), [10, 10]);
    }
}
