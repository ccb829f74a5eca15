//! A bundle at another place, as a directory.

use crate::reader::Bundle;
use crate::{Error, Overwrite, Result, Stop, Writer};
use std::fs::File;
use std::io;
use std::path::Path;

/// Copies a bundle, a directory or a packed file, to the new directory `target`, where LLDB can load its `trace.json`.
///
/// # Errors
/// Malformed, when it is no bundle; or the target exists, and may not be replaced; or `stop` came.
pub fn copy(bundle: &Path, target: &Path, overwrite: Overwrite, stop: &Stop) -> Result<()> {
    let opened = Bundle::open(bundle)?;
    let writer = Writer::create(target, overwrite)?;
    let copied = copy_dir(opened.root(), writer.root(), stop).map_err(Error::io("copy", bundle));
    stop.told(copied)?;
    writer.publish()
}

/// Links are not followed and not copied: nothing in a bundle is one.
fn copy_dir(from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            std::fs::create_dir_all(&to)?;
            copy_dir(&entry.path(), &to, stop)?;
        } else if kind.is_file() {
            stop.copy(&File::open(entry.path())?, &mut File::create_new(&to)?)?;
        }
    }
    Ok(())
}
