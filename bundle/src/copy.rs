//! Copies a bundle to another directory.

use crate::reader::Bundle;
use crate::{CancelToken, Error, Overwrite, Result, Writer};
use std::fs::File;
use std::io;
use std::path::Path;

/// Copies a bundle, which may be packed, to the new directory `target`. LLDB can load the copy's
/// `trace.json`.
///
/// # Errors
/// Fails if `bundle` is malformed, if the target exists and may not be replaced, or if `cancel` was
/// set.
pub fn copy(bundle: &Path, target: &Path, overwrite: Overwrite, cancel: &CancelToken) -> Result<()> {
    let opened = Bundle::open(bundle)?;
    let writer = Writer::create(target, overwrite)?;
    let copied = copy_dir(opened.root(), writer.root(), cancel).map_err(Error::io("copy", bundle));
    cancel.or_canceled(copied)?;
    writer.publish()
}

/// Copies directories and regular files. Symbolic links are skipped: a bundle has none.
fn copy_dir(from: &Path, to: &Path, cancel: &CancelToken) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            std::fs::create_dir_all(&to)?;
            copy_dir(&entry.path(), &to, cancel)?;
        } else if kind.is_file() {
            cancel.copy(&File::open(entry.path())?, &mut File::create_new(&to)?)?;
        }
    }
    Ok(())
}
