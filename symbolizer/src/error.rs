//! The errors of opening symbols.

use std::path::PathBuf;

/// The reason why an ELF file's symbols could not be opened.
///
/// Opening a file only checks the ELF headers. Damaged symbol tables and DWARF lead to fewer
/// results later, but never to an error or a wrong guess.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not an ELF file.
    #[error("this is not an ELF file; pass a linked x86-64 program, library or debug file")]
    NotElf,
    /// The headers of the ELF file are inconsistent.
    #[error("the ELF headers are damaged ({0}); copy the file again from the traced machine")]
    Malformed(#[from] object::read::Error),
    /// The ELF file is of a kind that no traced process maps.
    #[error("{0} is not supported; pass a linked x86-64 program, library or debug file")]
    Unsupported(&'static str),
    /// The file could not be read.
    #[error("cannot read {}: {source}; check the path and its permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file exceeds [`crate::DebugSearch::max_file_size`].
    #[error("{} has {size} bytes, over the limit of {limit}; raise the limit if the file is genuine", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The file's size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl Error {
    /// Returns whether the input itself is damaged, as opposed to unreadable or unsupported.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::NotElf | Self::Malformed(_))
    }
}
