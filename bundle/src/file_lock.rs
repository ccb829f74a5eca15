//! Locks of files, which end with their process.

use std::fs::File;
use std::io;

/// A locked file. The lock ends with this value, or with the process.
#[derive(Debug)]
pub(crate) struct FileLock {
    /// `None` where directories cannot be locked.
    file: Option<File>,
}

impl FileLock {
    /// Locks a file, unless another process or another open file holds its lock.
    pub(crate) fn take(file: File) -> io::Result<Self> {
        fs4::FileExt::try_lock(&file)?;
        Ok(Self { file: Some(file) })
    }

    /// Returns a lock that excludes no process.
    #[cfg(windows)]
    pub(crate) fn none() -> Self {
        Self { file: None }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Closing the file unlocks it too, after the last copy of its descriptor is closed.
            let _ = fs4::FileExt::unlock(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{lock_directory, open_lock};

    #[test]
    fn locked_file_is_refused_until_its_lock_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = FileLock::take(File::create_new(&path).unwrap()).unwrap();
        let refused = FileLock::take(open_lock(&path).unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        FileLock::take(open_lock(&path).unwrap()).unwrap();
        let held = lock_directory(directory.path()).unwrap();
        assert_eq!(lock_directory(directory.path()).is_err(), cfg!(unix));
        drop(held);
        lock_directory(directory.path()).unwrap();
    }
}
