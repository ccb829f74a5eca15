//! The runtime directory: the lock against a second daemon, the sockets, and the previous
//! `core_pattern`.
//!
//! Root executes and trusts its content. So only root may own it and write to it.

use crate::error::{Error, Result};
use crate::trust::first_untrusted;
use nix::fcntl::OFlag;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The hidden command of the [guard](crate::guard), which also locks the directory.
pub(crate) const GUARD_COMMAND: &str = "core-guard";
/// How long a predecessor may take to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The path of a runtime directory, which need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime(PathBuf);

/// The exclusive lock on a runtime directory, held until dropped.
#[derive(Debug)]
pub struct RuntimeLock {
    _lock: Flock<File>,
}

impl Runtime {
    /// Returns the runtime directory at a path.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the socket for crash handlers.
    #[must_use]
    pub fn crash_socket(&self) -> PathBuf {
        self.0.join("crash.socket")
    }

    /// Returns the socket for recorders of all users.
    #[must_use]
    pub fn recorder_socket(&self) -> PathBuf {
        self.0.join("recorder.socket")
    }

    /// Returns the socket that the kernel connects to.
    #[must_use]
    pub fn core_socket(&self) -> PathBuf {
        self.0.join("core.socket")
    }

    /// Returns the HTTP socket for metrics, health and snapshots.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.0.join("control.socket")
    }

    /// Returns the file with the previous `core_pattern`.
    #[must_use]
    pub fn saved_pattern(&self) -> PathBuf {
        self.0.join("core_pattern.json")
    }

    /// Returns the same file after the pattern was restored.
    #[must_use]
    pub fn past_pattern(&self) -> PathBuf {
        self.0.join("core_pattern.past.json")
    }

    /// Returns the link to the handler, for patterns without space for the program's own path.
    #[must_use]
    pub fn handler(&self) -> PathBuf {
        self.0.join("handler")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Creates the directory and locks it for one daemon.
    ///
    /// # Errors
    /// [`Error::Running`], or the directory cannot be created, or another user than root can change
    /// its content.
    pub fn lock(&self) -> Result<RuntimeLock> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.0)
            .map_err(Error::file("create", &self.0))?;
        self.check()?;
        let path = self.lock_file();
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(Error::file("open", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let written = lock
                    .set_len(0)
                    .and_then(|()| writeln!(lock, "{}", std::process::id()));
                written.map_err(Error::file("write", &path))?;
                Ok(RuntimeLock { _lock: lock })
            }
            Err((mut file, _)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(Error::Running {
                    pid: pid.trim().to_owned(),
                    runtime: self.0.clone(),
                })
            }
        }
    }

    /// Checks that only root can change the directory, if this process is root.
    fn check(&self) -> Result<()> {
        if !Uid::effective().is_root() {
            return Ok(());
        }
        match first_untrusted(&self.0).map_err(Error::file("look at", &self.0))? {
            None => Ok(()),
            Some(untrusted) => Err(Error::Unable(format!(
                "{untrusted}, but root trusts the runtime directory {}; change its owner to root and its mode to 755, or set `runtime` to another one",
                self.0.display()
            ))),
        }
    }

    /// Locks the directory, and waits a moment for a predecessor: its guard, or a killed daemon
    /// whose files the kernel is still closing.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_after_predecessor(&self) -> Result<RuntimeLock> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match self.lock() {
                Err(Error::Running { pid, .. })
                    if Instant::now() < deadline && !pid.parse().is_ok_and(is_daemon) =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    /// Returns whether a daemon holds the lock.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags.bits())
            .open(self.lock_file());
        let Ok(file) = file else {
            return false;
        };
        Flock::lock(file, FlockArg::LockSharedNonblock).is_err()
    }

    /// Links the handler to `program`.
    ///
    /// # Errors
    /// When the link cannot be created, or another user than root could replace it.
    pub(crate) fn link_handler(&self, program: &Path) -> Result<()> {
        self.check()?;
        let handler = self.handler();
        let _ = fs::remove_file(&handler);
        symlink(program, &handler).map_err(Error::file("link", &handler))
    }
}

/// Returns whether a process is a running daemon, and not its guard.
fn is_daemon(pid: i32) -> bool {
    let line = backtrail_process::status::command_line(pid);
    !line.is_empty() && !line.iter().any(|word| word == GUARD_COMMAND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(folder.path().join("run"));
        assert!(!runtime.is_locked());
        let first = runtime.lock().unwrap();
        assert!(runtime.is_locked());
        let error = runtime.lock().unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        assert!(!runtime.is_locked());
        runtime.lock().unwrap();
    }

    #[test]
    fn directory_writable_by_others_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown};
        if !Uid::effective().is_root() {
            return eprintln!("left out: only root has a directory that is root's");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let runtime = Runtime::new(&path);
        drop(runtime.lock().unwrap());
        for mode in [0o775, 0o757, 0o1777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = runtime.lock().unwrap_err().to_string();
            assert!(
                refused.contains("other users than root can write"),
                "{mode:o}: {refused}"
            );
            assert!(runtime.link_handler(Path::new("/bin/true")).is_err());
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        chown(&path, Some(1), None).unwrap();
        let refused = runtime.lock().unwrap_err().to_string();
        assert!(refused.contains("belongs to user 1"), "{refused}");
    }
}
