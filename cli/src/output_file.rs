//! Output to a file that appears only when it is complete.

use crate::exit::Failure;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Refuses to replace a file, unless the user allowed it.
pub fn refuse_existing(path: &Path, overwrite: bool) -> Result<(), Failure> {
    if !overwrite && path.symlink_metadata().is_ok() && !is_special(path) {
        return Err(Failure::failed(format_args!(
            "{} exists; use --overwrite to replace it",
            path.display()
        )));
    }
    Ok(())
}

/// Returns whether the path is a device, a pipe or a socket. These are written to, not replaced.
fn is_special(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Writes a file that appears only when it is complete.
pub fn write_atomically(
    path: &Path,
    overwrite: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::failed(format_args!("cannot write {}: {error}", path.display()));
    if is_special(path) {
        let file = OpenOptions::new().write(true).open(path).map_err(cannot)?;
        let mut out = BufWriter::with_capacity(1 << 16, file);
        write(&mut out)?;
        return out.flush().map_err(cannot);
    }
    // Follow a symbolic link: the link stays, and its target is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(cannot)?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write(&mut out)?;
    let file = out.into_inner().map_err(|error| cannot(error.into_error()))?;
    let kept = match overwrite {
        true => file.persist(path),
        false => file.persist_noclobber(path),
    };
    kept.map(drop).map_err(|error| cannot(error.error))
}
