//! Where packed bundles are unpacked to, for as long as somebody reads them.
//!
//! A reader that is killed leaves its copy behind, which may be large. So each reader holds a lock (flock(2)), which ends
//! with it, and the next one takes away what nobody holds.

use crate::{Error, Result};
use nix::fcntl::{Flock, FlockArg, OFlag};
use std::fs::{self, DirEntry, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// A directory that is there as long as this is.
#[derive(Debug)]
pub(crate) struct Unpacked {
    dir: TempDir,
    _lock: Flock<File>,
}

/// Those that this process reads.
static READ: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn read() -> MutexGuard<'static, Vec<PathBuf>> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes away what this process has unpacked to read it: for one that is about to end.
pub fn remove_unpacked() {
    for dir in read().drain(..) {
        // The next reader takes away what cannot be taken away now.
        let _ = fs::remove_dir_all(dir);
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        read().retain(|dir| dir != self.dir.path());
    }
}

/// How the names of all such directories begin.
const PREFIX: &str = "backtrail-unpacked-";
/// What is in them: a file to lock, which is locked before it has this name, and what was unpacked.
const LOCK: &str = "lock";
const NEW_LOCK: &str = "lock.new";
const CONTENTS: &str = "bundle";

impl Unpacked {
    /// An empty one, among temporary files.
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

    /// Where the contents go.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(CONTENTS)
    }
}

fn lock(dir: &Path) -> std::io::Result<Flock<File>> {
    let new = dir.join(NEW_LOCK);
    let file = File::create_new(&new)?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
    fs::rename(&new, dir.join(LOCK))?;
    Ok(lock)
}

/// Takes away what is among temporary files and nobody reads any more. What cannot be taken away stays.
fn sweep(among: &Path) {
    let entries = fs::read_dir(among).into_iter().flatten().flatten();
    for entry in entries.filter(is_ours) {
        let dir = entry.path();
        if let Some(_lock) = abandoned(&dir) {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

/// It has the name, and belongs to the user.
fn is_ours(entry: &DirEntry) -> bool {
    let named = entry
        .file_name()
        .as_encoded_bytes()
        .starts_with(PREFIX.as_bytes());
    let user = nix::unistd::geteuid().as_raw();
    named
        && entry
            .metadata()
            .is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// The lock of a directory that nobody holds.
fn abandoned(dir: &Path) -> Option<Flock<File>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(dir.join(LOCK))
        .ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_reader_left_is_taken_away_by_the_next() {
        let others = tempfile::tempdir().unwrap();
        let new = || Unpacked::among(others.path()).unwrap();
        let (killed, reads) = (new(), new());
        let left = killed.dir.path().to_owned();
        // Locks end with the processes that hold them.
        fs::write(left.join(CONTENTS).join("file"), "large").unwrap();
        fs::remove_file(left.join(LOCK)).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let next = new();
        assert!(!left.exists());
        assert!(reads.path().is_dir() && next.path().is_dir());
    }

    #[test]
    fn it_goes_when_it_was_read() {
        let unpacked = Unpacked::new().unwrap();
        let dir = unpacked.dir.path().to_owned();
        assert!(dir.is_dir());
        drop(unpacked);
        assert!(!dir.exists());
    }
}
