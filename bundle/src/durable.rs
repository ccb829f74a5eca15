//! What must outlive a loss of power: files and directories, written through to the disk.

use crate::{Error, Result};
use std::fs::{self, File};
use std::path::Path;

/// Writes everything under a directory through, itself included.
pub(crate) fn sync_tree(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)
        .map_err(Error::io("read", directory))?
        .flatten()
    {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => sync_tree(&path)?,
            Ok(kind) if kind.is_file() => File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(Error::io("write", &path))?,
            _ => {}
        }
    }
    sync_directory(directory)
}

/// Writes the names in a directory through.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(Error::io("write", directory))
}
