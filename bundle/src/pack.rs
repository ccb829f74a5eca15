//! Packs a bundle into one file, and unpacks it.

use crate::archive::{self, PackedFile};
use crate::manifest::Meta;
use crate::{Bundle, CancelToken, Error, Overwrite, Result, Writer, durable};
use std::fs::File;
use std::path::Path;

/// Packs the bundle in the directory `bundle` into the file `target`, which must not exist.
///
/// # Errors
/// Fails if `bundle` is not a bundle, if the file cannot be written, or if `cancel` was set.
pub fn pack(bundle: &Path, target: &Path, cancel: &CancelToken) -> Result<()> {
    let opened = Bundle::open(bundle)?;
    if target.symlink_metadata().is_ok() {
        return Err(Error::TargetExists {
            path: target.to_owned(),
            what: if target.is_dir() { "a directory" } else { "a file" },
            hint: "",
        });
    }
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(parent).map_err(Error::io("create a file in", parent))?;
    archive::write(opened.root(), file.as_file(), target, cancel)?;
    file.persist_noclobber(target)
        .map_err(|error| Error::io("create", target)(error.error))?;
    Ok(())
}

/// Unpacks the packed bundle `packed` to the new directory `target`.
///
/// # Errors
/// Fails if `packed` is malformed, if the target exists, or if `cancel` was set.
pub fn unpack(packed: &Path, target: &Path, cancel: &CancelToken) -> Result<()> {
    let writer = Writer::create(target, Overwrite::Never)?;
    archive::unpack_into(packed, writer.root(), cancel)?;
    Bundle::open(writer.root())?;
    writer.publish()
}

/// Unpacks an untrusted packed bundle from an open file to the new directory `target`, and syncs it
/// to disk. `revise` computes the description to store from the unpacked bundle.
///
/// # Errors
/// Fails as [`unpack`] does, if more than `limit` bytes would be unpacked, or if `revise` fails. On
/// failure, nothing is left at the target.
pub fn unpack_revised(
    packed: &File,
    target: &Path,
    limit: u64,
    revise: impl FnOnce(&Bundle) -> Result<Meta>,
) -> Result<()> {
    let writer = Writer::create(target, Overwrite::Never)?;
    let packed = PackedFile {
        file: packed,
        place: "the bundle".to_owned(),
    };
    archive::unpack_entries(&packed, writer.root(), limit, &CancelToken::default())?;
    let meta = revise(&Bundle::open(writer.root())?)?;
    writer.replace_meta(&meta)?;
    Bundle::open(writer.root())?;
    durable::sync_tree(writer.root())?;
    writer.publish()?;
    durable::sync_directory(target.parent().unwrap_or(Path::new(".")))
}
