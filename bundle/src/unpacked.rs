//! Temporary directories for packed bundles while they are read.
//!
//! A reader that is killed does not remove its copy, which may be large. Each reader therefore
//! holds a lock (flock(2)), which ends with the process. The next reader removes directories
//! without a lock.

use crate::file_lock::FileLock;
use crate::platform;
use crate::{Error, Result};
use std::fs::{self, DirEntry, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// A temporary directory that is removed on drop.
#[derive(Debug)]
pub(crate) struct Unpacked {
    dir: TempDir,
    _lock: FileLock,
}

/// The directories that this process uses.
static READ: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn read() -> MutexGuard<'static, Vec<PathBuf>> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the directories that this process unpacked. Call it before the process ends without
/// running destructors.
pub fn remove_unpacked() {
    for dir in read().drain(..) {
        // The next reader removes a directory that cannot be removed now.
        let _ = fs::remove_dir_all(dir);
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        read().retain(|dir| dir != self.dir.path());
    }
}

/// The prefix of such directories.
const PREFIX: &str = "backtrail-unpacked-";
/// The contents of such a directory: the lock file, which is locked before it gets this name, and
/// the unpacked bundle.
const LOCK: &str = "lock";
const NEW_LOCK: &str = "lock.new";
const CONTENTS: &str = "bundle";

impl Unpacked {
    /// Creates an empty directory among the temporary files.
    pub fn new() -> Result<Self> {
        Self::among(&std::env::temp_dir())
    }

    fn among(others: &Path) -> Result<Self> {
        sweep(others);
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(others);
        let dir = dir.map_err(Error::io("create", others))?;
        read().push(dir.path().to_owned());
        let lock = lock(dir.path()).map_err(Error::io("lock", dir.path()))?;
        let unpacked = Self { dir, _lock: lock };
        let contents = unpacked.path();
        fs::create_dir(&contents).map_err(Error::io("create", &contents))?;
        Ok(unpacked)
    }

    /// Returns the directory for the bundle's contents.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(CONTENTS)
    }
}

fn lock(dir: &Path) -> std::io::Result<FileLock> {
    let new = dir.join(NEW_LOCK);
    let file = File::create_new(&new)?;
    let lock = FileLock::take(file)?;
    fs::rename(&new, dir.join(LOCK))?;
    Ok(lock)
}

/// Removes unused directories among the temporary files, as far as possible.
fn sweep(among: &Path) {
    let entries = fs::read_dir(among).into_iter().flatten().flatten();
    for entry in entries.filter(is_ours) {
        let dir = entry.path();
        if let Some(_lock) = abandoned(&dir) {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

/// Returns whether an entry has our prefix and belongs to the user.
fn is_ours(entry: &DirEntry) -> bool {
    let named = entry
        .file_name()
        .as_encoded_bytes()
        .starts_with(PREFIX.as_bytes());
    let is_ours = |found: fs::Metadata| found.is_dir() && platform::is_own(&found);
    named && entry.metadata().is_ok_and(is_ours)
}

/// Takes the lock of a directory that no process holds.
fn abandoned(dir: &Path) -> Option<FileLock> {
    FileLock::take(platform::open_lock(&dir.join(LOCK)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_a_killed_reader_is_removed_by_the_next() {
        let others = tempfile::tempdir().unwrap();
        let new = || Unpacked::among(others.path()).unwrap();
        let (killed, reads) = (new(), new());
        let left = killed.dir.path().to_owned();
        // The kernel releases locks when their process ends.
        fs::write(left.join(CONTENTS).join("file"), "large").unwrap();
        fs::remove_file(left.join(LOCK)).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let next = new();
        assert!(!left.exists());
        assert!(reads.path().is_dir() && next.path().is_dir());
    }

    #[test]
    fn directory_is_removed_on_drop() {
        let unpacked = Unpacked::new().unwrap();
        let dir = unpacked.dir.path().to_owned();
        assert!(dir.is_dir());
        drop(unpacked);
        assert!(!dir.exists());
    }
}
