//! Compaction: the segments of an hour become one, in a bounded amount of memory.

mod input;
mod merge;
mod plan;
mod sink;

use crate::blocking;
use crate::clock::now;
use crate::content::Content;
use crate::hour::Hour;
use crate::idle_counts::IdleCounts;
use crate::limits::Cancel;
use crate::origin_notes::OriginNotes;
use crate::push_hashes::PushHashes;
use crate::segment::{SegmentEntry, SegmentId, TableKind};
use crate::segment_reader::SegmentReader;
use crate::segment_writer::SegmentHistory;
use crate::stack_index::StackIndex;
use crate::store::Store;
use crate::writer::{COMMIT_WITHIN, check_duration};
use crate::{Error, Result};
use backtrail_profile::UnixNanos;
use input::Input;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The limits of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionOptions {
    /// The number of segments below which nothing is done, at least 2.
    pub min_segments: usize,
    /// The samples of the new segment.
    pub max_rows: u64,
    /// The bytes of memory, at least [`CompactionOptions::MIN_MEMORY`]. Segments that do not fit
    /// wait for the next compaction.
    pub memory: u64,
}

impl CompactionOptions {
    /// The smallest limit of memory: buffers of the new segment's files.
    pub const MIN_MEMORY: u64 = 96 << 20;
}

/// Four segments, 100 million samples, 256 MiB.
impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            min_segments: 4,
            max_rows: 100_000_000,
            memory: 256 << 20,
        }
    }
}

/// The result of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The segments that were replaced.
    pub removed: Vec<SegmentId>,
    /// The new segment.
    pub added: SegmentEntry,
}

impl Store {
    /// Replaces segments of an hour by one with the same samples. `None`: there are too few, or
    /// they do not fit the limits.
    ///
    /// Several compactions and writers may run at once. The catalog accepts one of two compactions
    /// that replace the same segment. The files of the other one become garbage.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if another job replaced a segment, [`Error::Canceled`] after a
    /// cancellation, and those of files that cannot be read or written.
    pub async fn compact(
        &self,
        hour: Hour,
        options: CompactionOptions,
        cancel: &Cancel,
    ) -> Result<Option<Compacted>> {
        let Some(prepared) = self.prepare_compaction(hour, options, cancel).await? else {
            return Ok(None);
        };
        self.commit_compaction(prepared).await.map(Some)
    }

    /// Writes the segment that replaces others, without the commit.
    pub(crate) async fn prepare_compaction(
        &self,
        hour: Hour,
        options: CompactionOptions,
        cancel: &Cancel,
    ) -> Result<Option<Prepared>> {
        if options.memory < CompactionOptions::MIN_MEMORY {
            return Err(Error::Memory {
                job: "a compaction",
                needed: CompactionOptions::MIN_MEMORY,
                limit: options.memory,
                advice: "raise the limit of memory",
            });
        }
        let begin = Instant::now();
        let listing = crate::catalog::Listing {
            hours: hour..Hour(hour.0.saturating_add(1)),
            services: None,
        };
        let mut listed = self.catalog.list(&listing).await?;
        listed.retain(|entry| entry.hour == hour);
        let candidates = plan::candidates(listed, &options);
        let objects = Arc::clone(self.reader.objects());
        // A table is read once, so that the cache has footers only.
        let reader = SegmentReader::new(objects, 8 << 20, options.memory);
        let mut content = Content::default();
        let mut stacks = StackIndex::default();
        let mut inputs = Vec::new();
        let mut known_pushes = PushHashes::default();
        let mut budget = plan::Budget::new(options.memory);
        for entry in candidates {
            if cancel.is_canceled() {
                return Err(Error::Canceled);
            }
            if !budget.admits(&reader, &entry, &content).await? {
                break;
            }
            known_pushes.absorb(&pushes(&reader, &entry, now()).await?);
            inputs.push(Input::open(&reader, entry, &mut content, &mut stacks).await?);
        }
        if inputs.len() < options.min_segments.max(2) {
            return Ok(None);
        }
        drop(stacks);
        let entries: Vec<_> = inputs.iter().map(|input| input.entry().clone()).collect();
        let objects = Arc::clone(self.reader.objects());
        let (cancel, runtime) = (cancel.clone(), tokio::runtime::Handle::current());
        let levels = entries.iter().map(|entry| entry.level);
        let removed: Vec<_> = entries.iter().map(|entry| entry.id).collect();
        let (origin_notes, notes) = notes(&entries);
        let history = SegmentHistory {
            level: levels.max().unwrap_or(0).saturating_add(1),
            notes,
            origin_notes,
            idle: idle(&entries),
            pushes: known_pushes,
            replaced: removed.clone(),
        };
        let work = move || merge::merge(runtime, objects, hour, content, inputs, history, &cancel);
        let added = blocking::run(work).await?;
        Ok(Some(Prepared {
            begin,
            compacted: Compacted { removed, added },
        }))
    }

    /// Replaces the segments in the catalog.
    pub(crate) async fn commit_compaction(&self, prepared: Prepared) -> Result<Compacted> {
        let Prepared { begin, compacted } = prepared;
        let added = std::slice::from_ref(&compacted.added);
        check_duration(begin.elapsed(), COMMIT_WITHIN, added)?;
        self.catalog.commit(added, &compacted.removed, now()).await?;
        Ok(compacted)
    }
}

/// A segment that was written to replace others.
pub(crate) struct Prepared {
    begin: Instant,
    compacted: Compacted,
}

/// Returns the hashes of a segment's pushes that are known at a time. A list that cannot be read is
/// left out: the samples matter more.
async fn pushes(reader: &SegmentReader, entry: &SegmentEntry, now: UnixNanos) -> Result<PushHashes> {
    let file = reader.file(entry, TableKind::Contexts).await?;
    let mut pushes = PushHashes::read(file.key(), file.entries()).unwrap_or_default();
    pushes.keep_known(now);
    Ok(pushes)
}

/// Returns the samples of idle threads that were left out.
fn idle(entries: &[SegmentEntry]) -> IdleCounts {
    let mut counts = IdleCounts::default();
    entries.iter().for_each(|entry| counts.absorb(&entry.idle));
    counts
}

/// Returns the distinct notes of segments, and those whose service is not known.
fn notes(entries: &[SegmentEntry]) -> (OriginNotes, Vec<String>) {
    let mut notes = OriginNotes::default();
    let others: BTreeSet<_> = entries
        .iter()
        .flat_map(|entry| entry.add_notes(&mut notes))
        .collect();
    let others = others.into_iter().take(SegmentEntry::MAX_NOTES).cloned();
    (notes, others.collect())
}
