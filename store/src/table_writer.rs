//! The writer of one Parquet file, whose complete row groups can be sent before its end.

use crate::checksums;
use crate::schema::{Effort, properties, schema};
use crate::segment::{FileSummary, TableKind};
use crate::{Error, Result};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::KeyValue;

/// The writer of one file.
pub(crate) struct TableWriter {
    kind: TableKind,
    writer: ArrowWriter<Vec<u8>>,
    /// The bytes that were taken out of the writer.
    taken: u64,
    /// The checksums of the columns of complete row groups.
    checksums: Vec<u32>,
    /// The number of row groups with checksums.
    groups: usize,
    rows: u64,
}

/// Returns the error of the encoder.
pub(crate) fn not_encoded(error: impl ToString) -> Error {
    Error::System {
        action: "encode a segment",
        reason: error.to_string(),
    }
}

impl TableWriter {
    /// Begins a file of a table.
    pub(crate) fn new(kind: TableKind, effort: Effort) -> Result<Self> {
        Self::with_schema(kind, schema(kind), effort)
    }

    /// Begins a file of a table with other columns than those of this version.
    pub(crate) fn with_schema(kind: TableKind, schema: SchemaRef, effort: Effort) -> Result<Self> {
        // The types of Arrow are those of the schema, and would be most of a small file.
        let options = ArrowWriterOptions::new()
            .with_properties(properties(kind, effort))
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema, options);
        Ok(Self {
            kind,
            writer: writer.map_err(not_encoded)?,
            taken: 0,
            checksums: Vec::new(),
            groups: 0,
            rows: 0,
        })
    }

    /// Adds rows. Returns the bytes of row groups that are complete.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<Option<Vec<u8>>> {
        self.writer.write(batch).map_err(not_encoded)?;
        self.rows += batch.num_rows() as u64;
        match self.writer.flushed_row_groups().len() > self.groups {
            true => self.take().map(Some),
            false => Ok(None),
        }
    }

    /// Takes the bytes of complete row groups.
    fn take(&mut self) -> Result<Vec<u8>> {
        self.writer.sync().map_err(not_encoded)?;
        let bytes = std::mem::take(self.writer.inner_mut());
        let end = self.taken + bytes.len() as u64;
        for group in self.writer.flushed_row_groups().iter().skip(self.groups) {
            for column in group.columns() {
                let range = checksums::byte_range(column, end);
                let range = range.and_then(|range| {
                    let place = |at: u64| usize::try_from(at.checked_sub(self.taken)?).ok();
                    Some(place(range.start)?..place(range.end)?)
                });
                let content = range.and_then(|range| bytes.get(range));
                let content = content.ok_or_else(|| not_encoded("a column is not in its row group"))?;
                self.checksums.push(crc32fast::hash(content));
            }
            self.groups += 1;
        }
        self.taken = end;
        Ok(bytes)
    }

    /// Completes the file, whose footer gets a further entry. Returns its last bytes and its
    /// summary.
    pub(crate) fn finish(mut self, more: Option<KeyValue>) -> Result<(TableKind, Vec<u8>, FileSummary)> {
        self.writer.flush().map_err(not_encoded)?;
        let mut bytes = self.take()?;
        let entry = checksums::entry(&self.checksums);
        self.writer.append_key_value_metadata(entry);
        if let Some(more) = more {
            self.writer.append_key_value_metadata(more);
        }
        let end = self.writer.into_inner().map_err(not_encoded)?;
        let footer_crc = crc32fast::hash(footer(&end).ok_or_else(|| not_encoded("there is no footer"))?);
        bytes.extend_from_slice(&end);
        let summary = FileSummary {
            rows: self.rows,
            bytes: self.taken + end.len() as u64,
            footer_crc,
        };
        Ok((self.kind, bytes, summary))
    }
}

/// Returns the footer at the end of a file's bytes: the metadata, its length, and the mark.
pub(crate) fn footer(end: &[u8]) -> Option<&[u8]> {
    let length = footer_length(end)?;
    end.get(end.len().checked_sub(length)?..)
}

/// Returns the length of the footer, of which `end` has at least the last eight bytes.
pub(crate) fn footer_length(end: &[u8]) -> Option<usize> {
    let (rest, mark) = end.split_last_chunk::<4>()?;
    let (_, length) = rest.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    (mark == b"PAR1").then_some(length.checked_add(8)?)
}
