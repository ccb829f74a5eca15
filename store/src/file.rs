//! A Parquet file of a segment: its checked footer, and the decoding of row groups.

use crate::checksums;
use crate::schema::schema;
use crate::segment::{SegmentEntry, TableKind};
use crate::sparse_file::SparseFile;
use crate::table_writer::{footer, footer_length};
use crate::{Error, Result};
use arrow_array::RecordBatch;
use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::{ParquetMetaDataReader, RowGroupMetaData};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The bytes that are read of the end of a file at once.
const TAIL: u64 = 64 << 10;
/// The maximum length of a footer.
const MAX_FOOTER: usize = 64 << 20;
/// The rows of a batch.
const BATCH: usize = 8192;

/// A file whose footer was checked.
pub(crate) struct ParquetFile {
    key: String,
    size: u64,
    rows: u64,
    metadata: ArrowReaderMetadata,
    checksums: Vec<u32>,
    /// The length of the footer in bytes.
    footer: usize,
}

/// A row group whose columns were fetched.
pub(crate) struct FetchedGroup {
    file: Arc<ParquetFile>,
    group: usize,
    mask: ProjectionMask,
    /// The offset, content and checksum of each column.
    columns: Vec<(u64, Bytes, u32)>,
}

impl ParquetFile {
    /// Reads and checks the footer of a segment's file.
    pub(crate) async fn open(
        objects: &dyn ObjectStore,
        entry: &SegmentEntry,
        kind: TableKind,
    ) -> Result<Self> {
        let key = entry.key(kind);
        let summary = entry.file(kind);
        let place = Key::from(&*key);
        let failed = |error| Error::object(&key, error);
        let start = summary.bytes.saturating_sub(TAIL);
        let range = start..summary.bytes;
        let mut end = objects.get_range(&place, range).await.map_err(failed)?;
        let length = footer_length(&end).filter(|length| *length <= MAX_FOOTER);
        let length = length.ok_or_else(|| Error::damaged(&key, "the end is not that of a Parquet file"))?;
        if length > end.len() {
            let start = summary.bytes.saturating_sub(length as u64);
            let range = start..summary.bytes;
            end = objects.get_range(&place, range).await.map_err(failed)?;
        }
        let content = footer(&end).filter(|content| crc32fast::hash(content) == summary.footer_crc);
        let content = content
            .ok_or_else(|| Error::damaged(&key, "the footer is damaged, or the file is another one"))?;
        let metadata = content
            .get(..length.saturating_sub(8))
            .ok_or_else(|| Error::damaged(&key, "the footer is too short"))?;
        let metadata = guarded(&key, || {
            let metadata = ParquetMetaDataReader::decode_metadata(metadata)?;
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        })?;
        let file = Self {
            checksums: checksums::read(metadata.metadata())
                .ok_or_else(|| Error::damaged(&key, "the footer has no checksums"))?,
            key,
            size: summary.bytes,
            rows: summary.rows,
            metadata,
            footer: length,
        };
        file.check(kind)?;
        Ok(file)
    }

    fn check(&self, kind: TableKind) -> Result<()> {
        if self.metadata.schema().fields() != schema(kind).fields() {
            let problem = format!("the columns are not those of the table `{}`", kind.name());
            return Err(Error::damaged(&self.key, problem));
        }
        let rows = |group: &RowGroupMetaData| u64::try_from(group.num_rows()).ok();
        let groups = self.metadata.metadata().row_groups().iter();
        let rows = groups
            .map(rows)
            .try_fold(0u64, |sum, rows| sum.checked_add(rows?));
        match rows == Some(self.rows) && self.rows < u64::from(u32::MAX) {
            true => Ok(()),
            false => Err(Error::damaged(
                &self.key,
                "the number of rows is not that of the catalog",
            )),
        }
    }

    /// Returns the key of the file.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns an estimate of the footer's memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.footer.saturating_mul(6)
    }

    /// Returns the number of row groups.
    pub(crate) fn groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Returns the description of a row group.
    pub(crate) fn group(&self, group: usize) -> Option<&RowGroupMetaData> {
        self.metadata.metadata().row_groups().get(group)
    }

    /// Returns the compressed and the plain bytes of some columns of a row group.
    pub(crate) fn bytes_of(&self, group: usize, columns: &[usize]) -> (u64, u64) {
        let mask = self.mask(columns);
        let columns = self.group(group).map_or(&[][..], RowGroupMetaData::columns);
        let columns = columns
            .iter()
            .enumerate()
            .filter(|(leaf, _)| mask.leaf_included(*leaf));
        columns.fold((0, 0), |(compressed, plain), (_, column)| {
            let size = |size: i64| u64::try_from(size).unwrap_or(0);
            let compressed = u64::saturating_add(compressed, size(column.compressed_size()));
            (
                compressed,
                u64::saturating_add(plain, size(column.uncompressed_size())),
            )
        })
    }

    fn mask(&self, columns: &[usize]) -> ProjectionMask {
        let known = columns
            .iter()
            .copied()
            .filter(|column| *column < self.metadata.schema().fields().len());
        ProjectionMask::roots(self.metadata.parquet_schema(), known)
    }

    /// Fetches some columns of a row group.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        objects: &dyn ObjectStore,
        group: usize,
        columns: &[usize],
    ) -> Result<FetchedGroup> {
        let mask = self.mask(columns);
        let outside = || Error::damaged(&self.key, format!("row group {group} is outside the file"));
        let leaves = self.group(group).ok_or_else(outside)?.columns();
        let groups_before = self.metadata.metadata().row_groups().iter().take(group);
        let first_crc: usize = groups_before.map(RowGroupMetaData::num_columns).sum();
        let mut ranges = Vec::new();
        let mut checksums = Vec::new();
        for (leaf, column) in leaves.iter().enumerate() {
            if mask.leaf_included(leaf) {
                ranges.push(checksums::byte_range(column, self.size).ok_or_else(outside)?);
                checksums.push(*self.checksums.get(first_crc + leaf).ok_or_else(outside)?);
            }
        }
        let parts = match ranges.is_empty() {
            true => Vec::new(),
            false => objects
                .get_ranges(&Key::from(&*self.key), &ranges)
                .await
                .map_err(|error| Error::object(&self.key, error))?,
        };
        let columns = ranges.iter().zip(parts).zip(checksums);
        Ok(FetchedGroup {
            file: Arc::clone(self),
            group,
            mask,
            columns: columns
                .map(|((range, part), crc)| (range.start, part, crc))
                .collect(),
        })
    }
}

impl FetchedGroup {
    /// Calls a function for each batch of rows. The number of rows is that of the footer.
    pub(crate) fn for_each(self, mut read: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        let key = self.file.key.clone();
        let mut batches = self.batches()?;
        while let Some(batch) = next_batch(&key, &mut batches)? {
            read(&batch)?;
        }
        Ok(())
    }

    /// Checks the columns, and returns a reader of their batches.
    pub(crate) fn batches(self) -> Result<ParquetRecordBatchReader> {
        for (offset, content, crc) in &self.columns {
            if crc32fast::hash(content) != *crc {
                let problem = format!("the column at offset {offset} is damaged");
                return Err(Error::damaged(&self.file.key, problem));
            }
        }
        let parts = self
            .columns
            .into_iter()
            .map(|(offset, content, _)| (offset, content));
        let file = SparseFile::new(self.file.size, parts.collect());
        guarded(&self.file.key, || {
            let metadata = self.file.metadata.clone();
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
                .with_row_groups(vec![self.group])
                .with_projection(self.mask)
                .with_batch_size(BATCH)
                .build()
        })
    }
}

/// Returns the next batch of a file.
pub(crate) fn next_batch(key: &str, batches: &mut ParquetRecordBatchReader) -> Result<Option<RecordBatch>> {
    guarded(key, || batches.next().transpose())
}

/// Runs a function of the decoder. A panic of the decoder is an error of the file.
fn guarded<T, E: ToString>(key: &str, decode: impl FnOnce() -> std::result::Result<T, E>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(decoded)) => Ok(decoded),
        Ok(Err(error)) => Err(Error::damaged(key, error)),
        Err(_) => Err(Error::damaged(key, "the content cannot be decoded")),
    }
}
