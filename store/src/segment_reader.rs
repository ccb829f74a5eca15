//! The reader of segments, with caches of their footers and tables.

use crate::content::Context;
use crate::file::ParquetFile;
use crate::lru::{CacheStats, Lru};
use crate::row_parts::RowParts;
use crate::segment::{SegmentEntry, SegmentId, TableKind};
use crate::tables::{FrameTable, StackFrames, read_contexts, read_frames, read_stacks};
use crate::{Error, Result};
use object_store::ObjectStore;
use std::sync::Arc;

/// The reader of segments.
pub(crate) struct SegmentReader {
    objects: Arc<dyn ObjectStore>,
    /// The bytes that a table may need when it is read.
    table_limit: u64,
    files: Lru<(SegmentId, TableKind), ParquetFile>,
    /// By the index of the row group, as frames.
    stacks: Lru<(SegmentId, usize), StackFrames>,
    frames: Lru<(SegmentId, usize), FrameTable>,
    contexts: Lru<SegmentId, Vec<Context>>,
}

impl SegmentReader {
    /// Builds a reader whose caches have a limit of bytes.
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, cache: usize, table_limit: u64) -> Self {
        Self {
            objects,
            table_limit,
            files: Lru::new(cache / 4),
            stacks: Lru::new(cache / 4),
            frames: Lru::new(cache / 4),
            contexts: Lru::new(cache / 4),
        }
    }

    /// Returns the object store.
    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// Returns uses and size of each cache, by name.
    pub(crate) fn stats(&self) -> [(&'static str, CacheStats); 4] {
        [
            ("footers", self.files.stats()),
            ("stacks", self.stacks.stats()),
            ("frames", self.frames.stats()),
            ("contexts", self.contexts.stats()),
        ]
    }

    /// Returns a file of a segment.
    pub(crate) async fn file(&self, entry: &SegmentEntry, kind: TableKind) -> Result<Arc<ParquetFile>> {
        let key = (entry.id, kind);
        if let Some(file) = self.files.get(&key) {
            return Ok(file);
        }
        let file = ParquetFile::open(&*self.objects, entry, kind).await?;
        let bytes = file.memory();
        Ok(self.files.insert(key, file, bytes))
    }

    /// Checks that reading some row groups of a table stays within the limit of memory.
    fn check_size(&self, file: &ParquetFile, groups: impl Iterator<Item = usize>) -> Result<()> {
        let columns: Vec<usize> = (0..8).collect();
        let size = |group: usize| {
            let rows = file.group(group).map_or(0, |group| group.num_rows());
            // A value in memory has a header besides its bytes.
            let headers = u64::try_from(rows).unwrap_or(0).saturating_mul(96);
            file.bytes_of(group, &columns).1.saturating_add(headers)
        };
        let needed = groups.map(size).fold(0, u64::saturating_add);
        match needed <= self.table_limit {
            true => Ok(()),
            false => Err(Error::Memory {
                job: "reading a table of a segment",
                needed,
                limit: self.table_limit,
                advice: "raise the limit of memory",
            }),
        }
    }

    /// Returns the stacks of a segment: at least those that are needed. `None`: all.
    pub(crate) async fn stacks(
        &self,
        entry: &SegmentEntry,
        needed: Option<&[bool]>,
    ) -> Result<RowParts<StackFrames>> {
        let file = self.file(entry, TableKind::Stacks).await?;
        let mut parts = RowParts::new(file.starts());
        let groups = parts.needed(needed);
        self.check_size(&file, groups.iter().copied())?;
        for group in groups {
            let key = (entry.id, group);
            let part = match self.stacks.get(&key) {
                Some(found) => found,
                None => {
                    let stacks = read_stacks(&*self.objects, &file, group).await?;
                    let bytes = stacks.memory();
                    self.stacks.insert(key, stacks, bytes)
                }
            };
            parts.set(group, part);
        }
        Ok(parts)
    }

    /// Returns the frames of a segment: at least those that are needed. `None`: all.
    pub(crate) async fn frames(
        &self,
        entry: &SegmentEntry,
        needed: Option<&[bool]>,
    ) -> Result<RowParts<FrameTable>> {
        let file = self.file(entry, TableKind::Frames).await?;
        let mut parts = RowParts::new(file.starts());
        let groups = parts.needed(needed);
        self.check_size(&file, groups.iter().copied())?;
        for group in groups {
            let key = (entry.id, group);
            let part = match self.frames.get(&key) {
                Some(found) => found,
                None => {
                    let frames = read_frames(&*self.objects, &file, group).await?;
                    let bytes = frames.memory();
                    self.frames.insert(key, frames, bytes)
                }
            };
            parts.set(group, part);
        }
        Ok(parts)
    }

    /// Returns a segment's contexts.
    pub(crate) async fn contexts(&self, entry: &SegmentEntry) -> Result<Arc<Vec<Context>>> {
        if let Some(found) = self.contexts.get(&entry.id) {
            return Ok(found);
        }
        let file = self.file(entry, TableKind::Contexts).await?;
        self.check_size(&file, 0..file.groups())?;
        let contexts = read_contexts(&*self.objects, &file).await?;
        let pair = |(key, value): &(Box<str>, Box<str>)| key.len() + value.len() + 48;
        let labels = |labels: &Context| 16 + labels.iter().map(pair).sum::<usize>();
        let bytes = contexts.iter().map(labels).sum();
        Ok(self.contexts.insert(entry.id, contexts, bytes))
    }
}
