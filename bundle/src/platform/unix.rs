//! File operations of Linux and macOS.

use crate::file_lock::FileLock;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The state of a file: device, inode, size, and the times of its last changes.
///
/// A path is not enough: `/proc/self/fd/7` names another file after the descriptor was closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Reads the state of the file at `path`.
pub(crate) fn identity(path: &Path) -> io::Result<FileIdentity> {
    let seen = fs::metadata(path)?;
    Ok(FileIdentity {
        device: seen.dev(),
        inode: seen.ino(),
        size: seen.len(),
        modified: (seen.mtime(), seen.mtime_nsec()),
        changed: (seen.ctime(), seen.ctime_nsec()),
    })
}

/// Locks a directory, unless another process holds its lock.
pub(crate) fn lock_directory(directory: &Path) -> io::Result<FileLock> {
    FileLock::take(File::open(directory)?)
}

/// Opens the lock file of another process. Links are not followed, and pipes do not block.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    use nix::fcntl::OFlag;
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Returns whether a file belongs to the user of this process.
pub(crate) fn is_own(found: &Metadata) -> bool {
    found.uid() == nix::unistd::geteuid().as_raw()
}

/// Makes a directory accessible to its owner only.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))
}

/// Syncs a file to disk.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Syncs the entries of a directory to disk.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads at an offset. Returns the number of bytes, which may be less than requested.
pub(crate) fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(out, offset)
}

/// Writes all bytes at an offset.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Returns the next data range of a file. If the file system does not support holes, it is the rest
/// of the file (lseek(2)).
#[cfg(target_os = "linux")]
pub(crate) fn next_data(file: &File, from: u64, size: u64) -> Option<Range<u64>> {
    use nix::unistd::{Whence, lseek};
    if from >= size {
        return None;
    }
    let offset = i64::try_from(from).ok()?;
    let start = match lseek(file, offset, Whence::SeekData) {
        Ok(start) => u64::try_from(start).ok()?,
        Err(nix::errno::Errno::ENXIO) => return None,
        Err(_) => return Some(from..size),
    };
    let end = i64::try_from(start)
        .ok()
        .and_then(|start| lseek(file, start, Whence::SeekHole).ok());
    let end = end.and_then(|end| u64::try_from(end).ok()).unwrap_or(size);
    Some(start..end.clamp(start, size.max(start)))
}

/// Returns the rest of a file: holes are copied as zeros.
#[cfg(not(target_os = "linux"))]
pub(crate) fn next_data(_file: &File, from: u64, size: u64) -> Option<Range<u64>> {
    (from < size).then_some(from..size)
}
