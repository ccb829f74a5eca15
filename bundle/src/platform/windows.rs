//! File operations of Windows.

use crate::file_lock::FileLock;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// `FILE_FLAG_OPEN_REPARSE_POINT`: opens a link itself, not its target.
const OPEN_REPARSE_POINT: u32 = 0x0020_0000;

/// The state of a file: its canonical path, size and times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    path: PathBuf,
    size: u64,
    created: u64,
    modified: u64,
}

/// Reads the state of the file at `path`.
pub(crate) fn identity(path: &Path) -> io::Result<FileIdentity> {
    let path = fs::canonicalize(path)?;
    let seen = fs::metadata(&path)?;
    Ok(FileIdentity {
        path,
        size: seen.file_size(),
        created: seen.creation_time(),
        modified: seen.last_write_time(),
    })
}

/// Succeeds without a lock. Only the collector removes abandoned directories, and it runs on
/// Linux.
pub(crate) fn lock_directory(_directory: &Path) -> io::Result<FileLock> {
    Ok(FileLock::none())
}

/// Opens the lock file of another process. Links are not followed.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OPEN_REPARSE_POINT)
        .open(path)
}

/// Returns `true`: the directory of temporary files belongs to one user.
pub(crate) fn is_own(_found: &Metadata) -> bool {
    true
}

/// Does nothing: a new directory has the permissions of its parent.
pub(crate) fn make_private(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// Syncs a file to disk, for which Windows needs write access.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.sync_all()
}

/// Does nothing: NTFS logs changes of directories.
pub(crate) fn sync_directory(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// Reads at an offset. Returns the number of bytes, which may be less than requested.
pub(crate) fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(out, offset)
}

/// Writes all bytes at an offset.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match file.seek_write(rest, offset + done as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => done += written,
        }
    }
    Ok(())
}

/// Returns the rest of a file: holes are copied as zeros.
pub(crate) fn next_data(_file: &File, from: u64, size: u64) -> Option<Range<u64>> {
    (from < size).then_some(from..size)
}
