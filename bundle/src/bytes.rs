//! Bytes of a file, shared without copying.

use crate::{Error, Result};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// A range of bytes that is cheap to clone and to slice. The file stays mapped while any range of
/// it exists.
#[derive(Clone)]
pub struct SharedBytes {
    backing: Arc<Backing>,
    range: Range<usize>,
}

enum Backing {
    Memory(Vec<u8>),
    Map(memmap2::Mmap),
}

impl Backing {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Map(map) => map,
        }
    }
}

impl SharedBytes {
    /// Maps a whole file.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or mapped.
    pub fn map_file(path: &Path) -> Result<Self> {
        // Opening a named pipe would wait for a writer.
        let metadata = path.metadata().map_err(Error::io("open", path))?;
        if !metadata.is_file() {
            return Err(Error::malformed(path.display(), "this is not a regular file"));
        }
        if metadata.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        let file = File::open(path).map_err(Error::io("open", path))?;
        Self::map_open(&file, path)
    }

    /// Maps a whole open file. `path` names it in errors.
    ///
    /// # Errors
    /// Fails if the file cannot be mapped.
    pub(crate) fn map_open(file: &File, path: &Path) -> Result<Self> {
        if file.metadata().map_err(Error::io("read", path))?.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        // SAFETY: the map is private and read-only, and callers only get shared slices of it. If
        // another process truncates the file, an access raises SIGBUS; it never reads wrong memory.
        // Every reader that maps files accepts this.
        let map = unsafe { memmap2::Mmap::map(file) }.map_err(Error::io("map", path))?;
        let range = 0..map.len();
        Ok(Self {
            backing: Arc::new(Backing::Map(map)),
            range,
        })
    }

    /// Returns a part of these bytes, or `None` if `range` goes beyond their end.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        let start = usize::try_from(range.start).ok()?;
        let end = usize::try_from(range.end).ok()?;
        if start > end || end > self.range.len() {
            return None;
        }
        let base = self.range.start;
        Some(Self {
            backing: Arc::clone(&self.backing),
            range: base + start..base + end,
        })
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self {
            backing: Arc::new(Backing::Memory(bytes)),
            range,
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.backing
            .as_slice()
            .get(self.range.clone())
            .unwrap_or_default()
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_count_from_their_own_start_and_stay_inside() {
        let bytes = SharedBytes::from(b"abcdef".to_vec());
        let tail = bytes.slice(2..6).unwrap();
        assert_eq!(&*tail, b"cdef");
        assert_eq!(&*tail.slice(1..3).unwrap(), b"de");
        assert!(tail.slice(0..5).is_none());
        assert!(tail.slice(std::ops::Range { start: 3, end: 2 }).is_none());
        assert!(tail.slice(u64::MAX - 1..u64::MAX).is_none());
    }

    #[test]
    fn an_empty_file_maps_to_no_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(SharedBytes::map_file(file.path()).unwrap().is_empty());
    }
}
