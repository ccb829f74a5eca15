//! The writer of a segment: samples in their order, then the stacks, frames and contexts of them.

use crate::Result;
use crate::build_id_filter::BuildIdFilter;
use crate::content::{Content, ContextId, OriginId, PeriodicEventId, Row};
use crate::encode::{self, SampleEncoder};
use crate::footer_entry;
use crate::hour::Hour;
use crate::idle_counts::IdleCounts;
use crate::origin_notes::OriginNotes;
use crate::push_hashes::PushHashes;
use crate::schema::Effort;
use crate::segment::{FileSummary, SegmentEntry, SegmentId, TableKind};
use crate::table_writer::{TableWriter, not_encoded};
use backtrail_profile::{Frame, FrameId, Id, StackId};
use parquet::file::metadata::KeyValue;
use std::collections::BTreeSet;

/// The rows of a batch.
const BATCH: usize = 8192;

/// The receiver of a segment's bytes.
pub(crate) trait Sink {
    /// Adds bytes to the end of a file.
    fn send(&mut self, kind: TableKind, bytes: Vec<u8>) -> Result<()>;
}

/// Dense ids of a segment, in the order of first use.
struct DenseIds<I> {
    /// The dense id by index. `u32::MAX`: none.
    ids: Vec<u32>,
    /// The values in the order of their dense ids.
    used: Vec<I>,
}

impl<I: Id> DenseIds<I> {
    fn new() -> Self {
        Self {
            ids: Vec::new(),
            used: Vec::new(),
        }
    }

    fn of(&mut self, value: I) -> u32 {
        let index = value.index();
        if index >= self.ids.len() {
            self.ids.resize(index + 1, u32::MAX);
        }
        match self.ids.get_mut(index) {
            Some(id) if *id == u32::MAX => {
                *id = self.used.len() as u32;
                self.used.push(value);
                *id
            }
            Some(id) => *id,
            None => u32::MAX,
        }
    }
}

/// The origin of a segment: profiles, or segments that it replaces.
#[derive(Debug, Default)]
pub(crate) struct SegmentHistory {
    /// The number of compactions.
    pub(crate) level: u8,
    /// Sentences for the reader of segments of earlier versions.
    pub(crate) notes: Vec<String>,
    /// Sentences for the reader, with their origins.
    pub(crate) origin_notes: OriginNotes,
    /// The samples of idle threads that were left out.
    pub(crate) idle: IdleCounts,
    /// The hashes of the pushes that have its samples.
    pub(crate) pushes: PushHashes,
    /// The segments that it replaces.
    pub(crate) replaced: Vec<SegmentId>,
}

/// The writer of a segment.
pub(crate) struct SegmentWriter {
    id: SegmentId,
    hour: Hour,
    encoder: SampleEncoder,
    effort: Effort,
    samples: TableWriter,
    stacks: DenseIds<StackId>,
    contexts: DenseIds<ContextId>,
    origins: DenseIds<OriginId>,
    events: DenseIds<PeriodicEventId>,
    first: i64,
    last: i64,
}

impl SegmentWriter {
    /// Begins a segment with a random id.
    pub(crate) fn new(hour: Hour, effort: Effort) -> Result<Self> {
        let id = SegmentId::random()?;
        Ok(Self {
            id,
            hour,
            encoder: SampleEncoder::new(id),
            effort,
            samples: TableWriter::new(TableKind::Samples, effort)?,
            stacks: DenseIds::new(),
            contexts: DenseIds::new(),
            origins: DenseIds::new(),
            events: DenseIds::new(),
            first: i64::MAX,
            last: i64::MIN,
        })
    }

    /// Returns the id of the segment.
    pub(crate) fn id(&self) -> SegmentId {
        self.id
    }

    /// Adds samples. They must be sorted, and of the segment's hour.
    pub(crate) fn push(&mut self, content: &Content, rows: &[Row], sink: &mut dyn Sink) -> Result<()> {
        for rows in rows.chunks(BATCH) {
            let stacks = rows.iter().map(|row| self.stacks.of(row.stack)).collect();
            let contexts = rows.iter().map(|row| self.contexts.of(row.context)).collect();
            for row in rows {
                self.origins.of(row.origin);
                self.events.of(row.event);
                self.first = self.first.min(row.time);
                self.last = self.last.max(row.time);
            }
            let batch = self.encoder.batch(content, rows, stacks, contexts);
            let bytes = self.samples.write(&batch.map_err(not_encoded)?)?;
            if let Some(bytes) = bytes {
                sink.send(TableKind::Samples, bytes)?;
            }
        }
        Ok(())
    }

    /// Completes the segment, which must have a sample. Returns its description.
    pub(crate) fn finish(
        self,
        content: &Content,
        history: SegmentHistory,
        sink: &mut dyn Sink,
    ) -> Result<SegmentEntry> {
        let table = SegmentTable {
            id: self.id,
            effort: self.effort,
            content,
        };
        let mut frame_ids = sorted_frames(content, &self.stacks.used);
        let stacks = write_stacks(&table, &self.stacks.used, &mut frame_ids, sink)?;
        let frames = write_frames(&table, &frame_ids.used, sink)?;
        let contexts = write_contexts(&table, &self.contexts.used, history.pushes.entry(), sink)?;
        let origins = || self.origins.used.iter().filter_map(|id| content.origins.get(*id));
        let profile = &content.profile;
        let events = self.events.used.iter().filter_map(|id| content.events.get(*id));
        let events = events.filter_map(|one| Some(profile.text(profile.events.get(one.event)?.name)));
        let mut entry = SegmentEntry {
            id: self.id,
            hour: self.hour,
            level: history.level,
            first: self.first.cast_unsigned().saturating_mul(1000),
            // The column has rounded times.
            last: self.last.cast_unsigned().saturating_mul(1000).saturating_add(999),
            samples: FileSummary::default(),
            stacks,
            frames,
            contexts,
            services: names(origins().map(|origin| &*origin.service)),
            hosts: names(origins().map(|origin| &*origin.host)),
            events: names(events),
            build_ids: build_ids(content, &frame_ids.used),
            notes: history.notes,
            origin_notes: history.origin_notes,
            idle: history.idle,
        };
        let description = footer_entry::write(&entry, &history.replaced)?;
        let (kind, bytes, summary) = self.samples.finish(Some(description))?;
        sink.send(kind, bytes)?;
        entry.samples = summary;
        Ok(entry)
    }
}

/// The tables of a segment besides its samples.
struct SegmentTable<'a> {
    id: SegmentId,
    effort: Effort,
    content: &'a Content,
}

/// Completes a file, whose footer gets a further entry.
fn end(writer: TableWriter, more: Option<KeyValue>, sink: &mut dyn Sink) -> Result<FileSummary> {
    let (kind, bytes, summary) = writer.finish(more)?;
    sink.send(kind, bytes)?;
    Ok(summary)
}

/// Returns the frames of stacks by module and offset, because neighbors differ little.
fn sorted_frames(content: &Content, stacks: &[StackId]) -> DenseIds<FrameId> {
    let profile = &content.profile;
    let mut is_used = vec![false; profile.frames.len()];
    let mut is_seen = vec![false; profile.stacks.len()];
    for stack in stacks {
        let mut rest = *stack;
        // The callers of a stack that was seen were seen too.
        while let Some((caller, frame)) = profile.stacks.split(rest)
            && let Some(seen) = is_seen.get_mut(rest.index())
            && !std::mem::replace(seen, true)
        {
            if let Some(used) = is_used.get_mut(frame.index()) {
                *used = true;
            }
            rest = caller;
        }
    }
    let used = profile
        .frames
        .iter()
        .filter(|(id, _)| is_used.get(id.index()) == Some(&true));
    let mut frames: Vec<_> = used
        .map(|(id, frame)| {
            let key = match *frame {
                Frame::Code { module, offset } => (0, module.index(), offset.0),
                Frame::Address(address) => (1, 0, address),
                Frame::Function { function, line } => (2, function.index(), u64::from(line)),
                _ => (3, 0, 0),
            };
            (key, id)
        })
        .collect();
    frames.sort_unstable();
    let mut ids = DenseIds::new();
    for (_, id) in frames {
        ids.of(id);
    }
    ids
}

fn write_stacks(
    table: &SegmentTable<'_>,
    stacks: &[StackId],
    frame_ids: &mut DenseIds<FrameId>,
    sink: &mut dyn Sink,
) -> Result<FileSummary> {
    let mut writer = TableWriter::new(TableKind::Stacks, table.effort)?;
    for (number, stacks) in stacks.chunks(BATCH).enumerate() {
        let rows: Vec<_> = stacks
            .iter()
            .map(|stack| {
                let frames = table.content.profile.stacks.frames(*stack);
                frames.map(|frame| frame_ids.of(frame)).collect()
            })
            .collect();
        let batch = encode::stacks(table.id, (number * BATCH) as u32, &rows);
        if let Some(bytes) = writer.write(&batch.map_err(not_encoded)?)? {
            sink.send(TableKind::Stacks, bytes)?;
        }
    }
    end(writer, None, sink)
}

fn write_frames(table: &SegmentTable<'_>, frames: &[FrameId], sink: &mut dyn Sink) -> Result<FileSummary> {
    let mut writer = TableWriter::new(TableKind::Frames, table.effort)?;
    for (number, frames) in frames.chunks(BATCH).enumerate() {
        let batch = encode::frames(table.id, (number * BATCH) as u32, table.content, frames);
        if let Some(bytes) = writer.write(&batch.map_err(not_encoded)?)? {
            sink.send(TableKind::Frames, bytes)?;
        }
    }
    end(writer, None, sink)
}

fn write_contexts(
    table: &SegmentTable<'_>,
    contexts: &[ContextId],
    pushes: Option<KeyValue>,
    sink: &mut dyn Sink,
) -> Result<FileSummary> {
    let mut writer = TableWriter::new(TableKind::Contexts, table.effort)?;
    for (number, contexts) in contexts.chunks(BATCH).enumerate() {
        let labels: Vec<_> = contexts
            .iter()
            .filter_map(|context| table.content.contexts.get(*context))
            .collect();
        let batch = encode::contexts(table.id, (number * BATCH) as u32, &labels);
        if let Some(bytes) = writer.write(&batch.map_err(not_encoded)?)? {
            sink.send(TableKind::Contexts, bytes)?;
        }
    }
    end(writer, pushes, sink)
}

/// Returns the distinct names in order, or `None` if there are too many for an entry.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let mut distinct = BTreeSet::new();
    for name in names {
        if !distinct.contains(name) {
            distinct.insert(name);
        }
        if distinct.len() > SegmentEntry::MAX_NAMES {
            return None;
        }
    }
    Some(distinct.into_iter().map(String::from).collect())
}

fn build_ids(content: &Content, frames: &[FrameId]) -> BuildIdFilter {
    let profile = &content.profile;
    let modules = frames
        .iter()
        .filter_map(|frame| match profile.frames.get(*frame)? {
            Frame::Code { module, .. } => profile.modules.get(*module)?.build_id.as_ref(),
            _ => None,
        });
    let ids: BTreeSet<_> = modules.collect();
    BuildIdFilter::new(ids.into_iter())
}
