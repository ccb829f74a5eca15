//! The lock on a hub's directory: one server, or one command that replaces its data.

use crate::error::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::path::Path;

/// A held lock. It ends with this value, also if the process is killed.
#[derive(Debug)]
pub struct DataLock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl DataLock {
    /// Takes the lock of a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// Fails if another process has it, or the directory cannot be written.
    pub fn take(data: &Path) -> Result<Self> {
        fs::create_dir_all(data).map_err(Error::file("create", data))?;
        let path = data.join("lock");
        let file = File::create(&path).map_err(Error::file("create", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(Error::Configuration(format!(
                "another hub uses the directory {}; stop it, or name another directory with --data",
                data.display()
            ))),
            Err(TryLockError::Error(error)) => Err(Error::file("lock", &path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_of_a_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("hub");
        let lock = DataLock::take(&data).unwrap();
        let error = DataLock::take(&data).unwrap_err().to_string();
        assert!(error.starts_with("another hub uses the directory"), "{error}");
        drop(lock);
        let _again = DataLock::take(&data).unwrap();
    }
}
