//! Checksums of columns, which a file has in its footer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, ParquetMetaData};

/// The key of the checksums in the footer.
const KEY: &str = "backtrail.crc32";

/// Returns the range of a column's bytes in its file, if it is within `size`.
pub(crate) fn byte_range(column: &ColumnChunkMetaData, size: u64) -> Option<std::ops::Range<u64>> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    let end = start.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
    let is_within = end <= size && column.data_page_offset() >= 0;
    is_within.then_some(start..end)
}

/// Returns the entry of the footer with the checksums, those of the first row group first.
pub(crate) fn entry(checksums: &[u32]) -> KeyValue {
    let bytes: Vec<u8> = checksums.iter().flat_map(|crc| crc.to_le_bytes()).collect();
    KeyValue::new(KEY.into(), STANDARD.encode(bytes))
}

/// Returns the checksums of a file: one for each column of each row group.
pub(crate) fn read(metadata: &ParquetMetaData) -> Option<Vec<u32>> {
    let entries = metadata.file_metadata().key_value_metadata()?;
    let text = entries.iter().find(|entry| entry.key == KEY)?.value.as_ref()?;
    let bytes = STANDARD.decode(text).ok()?;
    let (words, rest) = bytes.as_chunks::<4>();
    let columns: usize = metadata
        .row_groups()
        .iter()
        .map(|group| group.num_columns())
        .sum();
    let is_complete = rest.is_empty() && words.len() == columns;
    is_complete.then(|| words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}
