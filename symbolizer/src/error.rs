//! What can go wrong when symbols are opened.

use std::path::PathBuf;

/// Why an ELF file's symbols could not be opened.
///
/// Only the ELF headers are checked when a file is opened; damaged symbol tables and damaged DWARF
/// give fewer answers later, never an error and never a wrong guess.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not an ELF file, or its headers contradict themselves.
    #[error("the ELF headers are damaged ({0}): get the file again from where the trace was taken")]
    Malformed(#[from] object::read::Error),
    /// An ELF file, but of a kind that no traced process maps.
    #[error("{0} is not supported: give a linked x86-64 program, library or debug file")]
    Unsupported(&'static str),
    /// The file could not be read.
    #[error("cannot read {}: {source}; check the path and its permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is larger than [`crate::DebugSearch::max_file_size`].
    #[error("{} has {size} bytes, over the limit of {limit}: raise the limit if the file is genuine", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl Error {
    /// The input itself is damaged, as opposed to unreachable or of a kind not handled.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed(_))
    }
}
