//! A bundle at another place, as a directory.

use crate::reader::Bundle;
use crate::{Error, Overwrite, Result, Writer};
use std::io;
use std::path::Path;

/// Copies a bundle, a directory or a packed file, to the new directory `target`, where LLDB can load its `trace.json`.
///
/// # Errors
/// Malformed, when it is no bundle; or the target exists, and may not be replaced.
pub fn copy(bundle: &Path, target: &Path, overwrite: Overwrite) -> Result<()> {
    let opened = Bundle::open(bundle)?;
    let writer = Writer::create(target, overwrite)?;
    copy_dir(opened.root(), writer.root()).map_err(Error::io("copy", bundle))?;
    writer.publish()
}

/// Links are not followed and not copied: nothing in a bundle is one.
fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            std::fs::create_dir_all(&to)?;
            copy_dir(&entry.path(), &to)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}
