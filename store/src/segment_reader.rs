//! The reader of segments, with caches of their footers and tables.

use crate::content::Context;
use crate::file::ParquetFile;
use crate::hash::StackHash;
use crate::lru::{CacheStats, Lru};
use crate::segment::{SegmentEntry, SegmentId, TableKind};
use crate::tables::{FrameTable, StackFrames, read_contexts, read_frames, read_hashes, read_stacks};
use crate::{Error, Result};
use object_store::ObjectStore;
use std::sync::Arc;

/// The reader of segments.
pub(crate) struct SegmentReader {
    objects: Arc<dyn ObjectStore>,
    /// The bytes that a table may need when it is read.
    table_limit: u64,
    files: Lru<(SegmentId, TableKind), ParquetFile>,
    hashes: Lru<SegmentId, Vec<StackHash>>,
    stacks: Lru<SegmentId, StackFrames>,
    frames: Lru<SegmentId, FrameTable>,
    contexts: Lru<SegmentId, Vec<Context>>,
}

impl SegmentReader {
    /// Builds a reader whose caches have a limit of bytes.
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, cache: usize, table_limit: u64) -> Self {
        Self {
            objects,
            table_limit,
            files: Lru::new(cache / 8),
            hashes: Lru::new(cache / 4),
            stacks: Lru::new(cache / 4),
            frames: Lru::new(cache / 4),
            contexts: Lru::new(cache / 8),
        }
    }

    /// Returns the object store.
    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// Returns uses and size of each cache, by name.
    pub(crate) fn stats(&self) -> [(&'static str, CacheStats); 5] {
        [
            ("footers", self.files.stats()),
            ("stack-hashes", self.hashes.stats()),
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

    /// Returns a table's file, if reading it stays within the limit of memory.
    async fn table(&self, entry: &SegmentEntry, kind: TableKind) -> Result<Arc<ParquetFile>> {
        let file = self.file(entry, kind).await?;
        let columns: Vec<usize> = (0..8).collect();
        let plain = (0..file.groups()).map(|group| file.bytes_of(group, &columns).1);
        // A value in memory has a header besides its bytes.
        let needed = plain.fold(file.rows().saturating_mul(96), u64::saturating_add);
        match needed <= self.table_limit {
            true => Ok(file),
            false => Err(Error::Memory {
                job: "reading a table of a segment",
                needed,
                limit: self.table_limit,
                advice: "raise the limit of memory",
            }),
        }
    }

    /// Returns the hashes of a segment's stacks.
    pub(crate) async fn hashes(&self, entry: &SegmentEntry) -> Result<Arc<Vec<StackHash>>> {
        if let Some(found) = self.hashes.get(&entry.id) {
            return Ok(found);
        }
        let file = self.table(entry, TableKind::Stacks).await?;
        let hashes = read_hashes(&*self.objects, &file).await?;
        let bytes = hashes.len() * size_of::<StackHash>();
        Ok(self.hashes.insert(entry.id, hashes, bytes))
    }

    /// Returns the frames of a segment's stacks.
    pub(crate) async fn stacks(&self, entry: &SegmentEntry) -> Result<Arc<StackFrames>> {
        if let Some(found) = self.stacks.get(&entry.id) {
            return Ok(found);
        }
        let file = self.table(entry, TableKind::Stacks).await?;
        let stacks = read_stacks(&*self.objects, &file).await?;
        let bytes = stacks.memory();
        Ok(self.stacks.insert(entry.id, stacks, bytes))
    }

    /// Returns a segment's frames.
    pub(crate) async fn frames(&self, entry: &SegmentEntry) -> Result<Arc<FrameTable>> {
        if let Some(found) = self.frames.get(&entry.id) {
            return Ok(found);
        }
        let file = self.table(entry, TableKind::Frames).await?;
        let frames = read_frames(&*self.objects, &file).await?;
        let bytes = frames.memory();
        Ok(self.frames.insert(entry.id, frames, bytes))
    }

    /// Returns a segment's contexts.
    pub(crate) async fn contexts(&self, entry: &SegmentEntry) -> Result<Arc<Vec<Context>>> {
        if let Some(found) = self.contexts.get(&entry.id) {
            return Ok(found);
        }
        let file = self.table(entry, TableKind::Contexts).await?;
        let contexts = read_contexts(&*self.objects, &file).await?;
        let pair = |(key, value): &(Box<str>, Box<str>)| key.len() + value.len() + 48;
        let labels = |labels: &Context| 16 + labels.iter().map(pair).sum::<usize>();
        let bytes = contexts.iter().map(labels).sum();
        Ok(self.contexts.insert(entry.id, contexts, bytes))
    }
}
