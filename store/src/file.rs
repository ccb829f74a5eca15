//! A Parquet file of a segment: its checked footer, and the decoding of row groups.

use crate::checksums;
use crate::footer_entry::{self, Description};
use crate::schema::{first_schema, schema};
use crate::segment::{FileSummary, SegmentEntry, TableKind};
use crate::sparse_file::SparseFile;
use crate::table_writer::{footer, footer_length};
use crate::{Error, Result};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader, RowGroupMetaData};
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
        let content = read_footer(objects, &key, summary.bytes).await?;
        if crc32fast::hash(&content) != summary.footer_crc {
            let problem = "the footer is damaged, or the file is another one";
            return Err(Error::damaged(&key, problem));
        }
        let length = content.len();
        let metadata = content.get(..length.saturating_sub(8)).unwrap_or_default();
        let metadata = guarded(&key, || {
            let metadata = ParquetMetaDataReader::decode_metadata(metadata)?;
            let columns = metadata.file_metadata().schema_descr().root_schema().get_fields();
            let has_all = |schema: &SchemaRef| {
                let names = schema.fields().iter().map(|field| field.name().as_str());
                names.eq(columns.iter().map(|column| column.name()))
            };
            let first = first_schema(kind).filter(has_all);
            let options = ArrowReaderOptions::new().with_schema(first.unwrap_or_else(|| schema(kind)));
            ArrowReaderMetadata::try_new(Arc::new(metadata), options)
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
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<()> {
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

    /// Returns the entries of the footer.
    pub(crate) fn entries(&self) -> &[KeyValue] {
        let entries = self.metadata.metadata().file_metadata().key_value_metadata();
        entries.map_or(&[], Vec::as_slice)
    }

    /// Returns the bytes of the entries' values.
    pub(crate) fn entry_bytes(&self) -> usize {
        let values = self.entries().iter().filter_map(|entry| entry.value.as_ref());
        values.map(String::len).sum()
    }

    /// Returns an estimate of the footer's memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let entries = self.entry_bytes();
        // Only the numbers take more memory than in the file.
        let numbers = self.footer.saturating_sub(entries);
        numbers.saturating_mul(6).saturating_add(entries)
    }

    /// Returns the indexes of columns. Names without a column are left out.
    pub(crate) fn columns(&self, names: &[&str]) -> Vec<usize> {
        let fields = self.metadata.schema().fields().iter().enumerate();
        let named = fields.filter(|(_, field)| names.contains(&field.name().as_str()));
        named.map(|(index, _)| index).collect()
    }

    /// Returns the first row of each row group, and the number of rows.
    pub(crate) fn starts(&self) -> Vec<usize> {
        let mut starts = vec![0];
        let mut end = 0usize;
        for group in self.metadata.metadata().row_groups() {
            end = end.saturating_add(usize::try_from(group.num_rows()).unwrap_or(0));
            starts.push(end);
        }
        starts
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

/// Reads the footer of a file of a known size: the metadata, its length, and the mark.
async fn read_footer(objects: &dyn ObjectStore, key: &str, size: u64) -> Result<Bytes> {
    let place = Key::from(key);
    let failed = |error| Error::object(key, error);
    let range = size.saturating_sub(TAIL)..size;
    let mut end = objects.get_range(&place, range).await.map_err(failed)?;
    let length = footer_length(&end).filter(|length| *length <= MAX_FOOTER);
    let length = length.ok_or_else(|| Error::damaged(key, "the end is not that of a Parquet file"))?;
    if length > end.len() {
        let range = size.saturating_sub(length as u64)..size;
        end = objects.get_range(&place, range).await.map_err(failed)?;
    }
    match footer(&end) {
        Some(content) => Ok(end.slice_ref(content)),
        None => Err(Error::damaged(key, "the footer is longer than the file")),
    }
}

/// Reads the description of a segment in its file of samples, whose size is known. `None`: the file
/// has none.
pub(crate) async fn describe(objects: &dyn ObjectStore, key: &str, size: u64) -> Result<Option<Description>> {
    let content = read_footer(objects, key, size).await?;
    let metadata = content.get(..content.len().saturating_sub(8)).unwrap_or_default();
    let metadata = guarded(key, || ParquetMetaDataReader::decode_metadata(metadata))?;
    let entries = metadata.file_metadata().key_value_metadata();
    let described = footer_entry::read(key, entries.map_or(&[], Vec::as_slice))?;
    let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
    Ok(described.map(|mut description| {
        description.entry.samples = FileSummary {
            rows,
            bytes: size,
            footer_crc: crc32fast::hash(&content),
        };
        description
    }))
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
