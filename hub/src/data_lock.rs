//! The lock on a hub's directory: one server, or one command that replaces its data.

use crate::error::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

/// The wait for a lock that another process has. When a hub is killed, a child that it was starting
/// has the lock until it executes its program.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two tries.
const INTERVAL: Duration = Duration::from_millis(20);

/// A held lock. It ends with this value, also if the process is killed.
#[derive(Debug)]
pub struct DataLock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl DataLock {
    /// Takes the lock of a directory, which is created if it does not exist.
    ///
    /// Waits up to two seconds for another process to release it.
    ///
    /// # Errors
    /// Fails if another process has it, or the directory cannot be written.
    pub fn take(data: &Path) -> Result<Self> {
        fs::create_dir_all(data).map_err(Error::file("create", data))?;
        let path = data.join("lock");
        let file = File::create(&path).map_err(Error::file("create", &path))?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::WouldBlock) if begin.elapsed() < PATIENCE => std::thread::sleep(INTERVAL),
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Configuration(format!(
                        "another hub uses the directory {}; stop it, or name another directory with --data",
                        data.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(Error::file("lock", &path)(error)),
            }
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
        let again = DataLock::take(&data).unwrap();
        // A lock that ends soon is waited for.
        let ends = std::thread::spawn(move || {
            std::thread::sleep(INTERVAL * 5);
            drop(again);
        });
        let _third = DataLock::take(&data).unwrap();
        ends.join().unwrap();
    }
}
