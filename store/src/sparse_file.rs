//! The parts of a file that were fetched, as the Parquet reader reads them.

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Parts of a file.
pub(crate) struct SparseFile {
    size: u64,
    parts: Vec<(u64, Bytes)>,
}

impl SparseFile {
    /// Builds a file of `size` bytes, of which some parts are present.
    pub(crate) fn new(size: u64, parts: Vec<(u64, Bytes)>) -> Self {
        Self { size, parts }
    }

    /// Returns the bytes from a place to the end of its part.
    fn from(&self, start: u64) -> Result<Bytes> {
        let part = self.parts.iter().find_map(|(offset, bytes)| {
            let within = usize::try_from(start.checked_sub(*offset)?).ok()?;
            (within < bytes.len()).then(|| bytes.slice(within..))
        });
        part.ok_or_else(|| ParquetError::General(format!("offset {start} is outside its column")))
    }
}

impl Length for SparseFile {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for SparseFile {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.from(start)?;
        match length <= bytes.len() {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::General(format!(
                "{length} bytes at offset {start} exceed their column"
            ))),
        }
    }
}
