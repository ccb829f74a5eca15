//! Reading the names of a segment from the object store.

use super::build::{Builder, Problem};
use super::segment::SegmentNames;
use super::symbols::Symbols;
use crate::objects::CountingStore;
use crate::{Error, Result};
use backtrail_store::{Hour, SegmentId, TableKind};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use std::sync::Arc;

/// The rows that are decoded at once.
const BATCH_ROWS: usize = 4096;

/// Where names are read from.
#[derive(Debug)]
pub(super) struct NameFiles {
    /// The object store.
    pub(super) store: Arc<CountingStore>,
    /// The pool of the query's memory.
    pub(super) pool: Arc<dyn MemoryPool>,
    /// The memory limit of the query, for errors.
    pub(super) memory: u64,
    /// The functions that the request brings.
    pub(super) symbols: Symbols,
}

impl NameFiles {
    /// Reads stacks and frames of a segment.
    pub(super) async fn read(&self, hour: Hour, id: SegmentId) -> Result<SegmentNames> {
        let memory = MemoryConsumer::new("names on stacks").register(&self.pool);
        let mut builder = Builder::new(&self.symbols, memory);
        let frames = TableKind::Frames.key(hour, id);
        // The name of `frame_kind` in files of version 1 is `kind`.
        let columns = [
            "frame",
            "frame_kind",
            "kind",
            "build_id",
            "module",
            "offset",
            "lines",
        ];
        self.each(&frames, &columns, |batch| builder.add_frames(batch))
            .await?;
        let stacks = TableKind::Stacks.key(hour, id);
        self.each(&stacks, &["stack", "frames"], |batch| builder.add_stacks(batch))
            .await?;
        builder.finish().map_err(|problem| self.error(&stacks, problem))
    }

    /// Decodes columns of a file.
    async fn each(
        &self,
        key: &str,
        columns: &[&str],
        mut add: impl FnMut(&RecordBatch) -> std::result::Result<(), Problem>,
    ) -> Result<()> {
        let file = self.file(key).await?;
        let held = MemoryConsumer::new("files of names").register(&self.pool);
        held.try_grow(file.len())
            .map_err(|_| Error::Memory(self.memory))?;
        let damaged = |problem: String| self.error(key, Problem::Damaged(problem));
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(error.to_string()))?;
        let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
        let batches = builder
            .with_batch_size(BATCH_ROWS)
            .with_projection(mask)
            .build()
            .map_err(|error| damaged(error.to_string()))?;
        for batch in batches {
            let batch = batch.map_err(|error| damaged(error.to_string()))?;
            add(&batch).map_err(|problem| self.error(key, problem))?;
        }
        Ok(())
    }

    async fn file(&self, key: &str) -> Result<Bytes> {
        let path = Path::from(key);
        let of_object = |error| Error::of_object(&error);
        let found = self.store.get(&path).await.map_err(of_object)?;
        found.bytes().await.map_err(of_object)
    }

    fn error(&self, key: &str, problem: Problem) -> Error {
        match problem {
            Problem::Memory => Error::Memory(self.memory),
            Problem::Damaged(problem) => Error::Damaged {
                key: key.into(),
                problem: crate::error::sentence(&problem),
            },
        }
    }
}
