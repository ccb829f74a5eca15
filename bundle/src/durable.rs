//! Syncs files and directories to disk, so that they survive a loss of power.

use crate::platform;
use crate::{Error, Result};
use std::fs;
use std::path::Path;

/// Syncs a directory and everything in it.
pub(crate) fn sync_tree(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)
        .map_err(Error::io("read", directory))?
        .flatten()
    {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => sync_tree(&path)?,
            Ok(kind) if kind.is_file() => platform::sync_file(&path).map_err(Error::io("write", &path))?,
            _ => {}
        }
    }
    sync_directory(directory)
}

/// Syncs the entries of a directory.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    platform::sync_directory(directory).map_err(Error::io("write", directory))
}
