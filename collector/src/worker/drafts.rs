//! The directory that a worker writes to, as the daemon manages it.

use super::task::{BUNDLE, NEW_MODULES};
use crate::error::{Error, Result};
use crate::ownership::{Owner, chown_recursively};
use backtrail_process::beneath::FileStatus;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{Gid, LinkatFlags, Uid, linkat};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The prefix of draft directories. The next start removes those of a killed daemon.
const PREFIX: &str = ".backtrail-draft-";
/// Maximum number of modules that one bundle adds to the shared ones.
const MAX_NEW: usize = 4096;

/// A draft directory. Dropping it removes it with all its content.
#[derive(Debug)]
pub(super) struct DraftDirectory {
    directory: TempDir,
    handle: File,
    _lock: Flock<File>,
}

impl DraftDirectory {
    /// Creates a draft directory in the spool, and gives it to a worker.
    ///
    /// # Errors
    /// When the directory cannot be created, or its owner cannot be changed.
    pub(super) fn create(spool: &Path, identity: u32) -> Result<Self> {
        let create = || -> io::Result<Self> {
            let directory = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(fs::Permissions::from_mode(0o700))
                .tempdir_in(spool)?;
            let handle = File::open(directory.path())?;
            let lock = Flock::lock(File::open(directory.path())?, FlockArg::LockExclusiveNonblock)
                .map_err(|(_, error)| error)?;
            let (user, group) = (Uid::from_raw(identity), Gid::from_raw(identity));
            nix::unistd::fchown(&handle, Some(user), Some(group))?;
            Ok(Self {
                directory,
                handle,
                _lock: lock,
            })
        };
        create().map_err(Error::file("write to", spool))
    }

    /// Returns the directory's descriptor.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Takes the directory back from a worker that has ended. Returns the path of the bundle in it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn take_back(&self) -> io::Result<PathBuf> {
        let owner = Owner {
            user: Uid::effective(),
            group: Some(Gid::effective()),
        };
        chown_recursively(self.directory.path(), owner)?;
        Ok(self.directory.path().join(BUNDLE))
    }

    /// Keeps the new modules and removes their directory, because a file of a bundle may only have
    /// a shared module as its other link. Call it after [`Self::take_back`].
    ///
    /// # Errors
    /// When the directory cannot be removed.
    pub(super) fn settle_modules(&self, shared: &File) -> io::Result<()> {
        // Other bundles do not depend on these modules.
        if let Err(error) = self.keep_modules(shared) {
            tracing::debug!("modules are not shared: {error}");
        }
        match fs::remove_dir_all(self.directory.path().join(NEW_MODULES)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Links the new modules into the directory of shared ones. Only names that look like a key are
    /// accepted, and only regular files. A module that another bundle has added in the meantime
    /// stays, because further bundles may have links to it already. Call it after
    /// [`Self::take_back`].
    fn keep_modules(&self, shared: &File) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let new = openat(self.handle(), NEW_MODULES, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in nix::dir::Dir::from_fd(new.try_clone()?)?.iter().take(MAX_NEW) {
            names.push(entry?.file_name().to_owned());
        }
        for name in names.iter().filter(|name| is_key(name.to_bytes())) {
            let found = fstatat(&new, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_nlink == 2 {
                let (from, to) = (name.as_c_str(), name.as_c_str());
                match linkat(&new, from, shared, to, LinkatFlags::empty()) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

impl Drop for DraftDirectory {
    fn drop(&mut self) {
        // Only the owner can remove it. If this fails, the next start removes it.
        let _ = self.take_back();
    }
}

/// Opens the directory of modules that bundles of a user share, and creates it if it is missing.
///
/// # Errors
/// When it cannot be created.
pub(super) fn shared_modules(directory: &Path) -> io::Result<File> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    File::open(directory)
}

/// Returns the name of a module among the shared ones, from the original file's device, inode, size
/// and times. A build id is not enough, because anyone can write one into a file.
#[must_use]
pub(super) fn key(status: &FileStatus) -> String {
    let (id, [modified, changed]) = (status.id, status.times);
    format!(
        "{:x}.{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        id.device.0, id.device.1, id.inode, status.size, modified.0, modified.1, changed.0, changed.1
    )
}

fn is_key(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_hexdigit() || b".-".contains(byte);
    name.len() <= 128 && name.contains(&b'-') && name.iter().all(plain) && !name.starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_process::beneath;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn keys_are_distinguished_from_other_names() {
        let file = tempfile::tempfile().unwrap();
        let key = key(&beneath::status(&file).unwrap());
        assert!(is_key(key.as_bytes()), "{key}");
        for name in [&b".."[..], b".", b"", b"a/b-c", b"x-1", b".-", &[b'1'; 200]] {
            assert!(!is_key(name), "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn only_regular_new_modules_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let draft = DraftDirectory::create(folder.path(), Uid::effective().as_raw()).unwrap();
        let at = |name: &str| draft.directory.path().join(name);
        fs::create_dir(at(NEW_MODULES)).unwrap();
        fs::create_dir(at(BUNDLE)).unwrap();
        let new = |name: &str| at(NEW_MODULES).join(name);
        fs::write(at(BUNDLE).join("a"), b"code").unwrap();
        fs::hard_link(at(BUNDLE).join("a"), new("1-2")).unwrap();
        fs::write(new("3-4"), b"in no bundle").unwrap();
        fs::hard_link(at(BUNDLE).join("a"), new("not a key")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", new("5-6")).unwrap();
        fs::create_dir(new("7-8")).unwrap();
        fs::remove_file(new("not a key")).unwrap();
        let shared = folder.path().join("shared");
        let handle = shared_modules(&shared).unwrap();
        draft.take_back().unwrap();
        draft.keep_modules(&handle).unwrap();
        let names: Vec<_> = fs::read_dir(&shared)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["1-2"]);
        drop(draft);
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "the draft is gone"
        );
        assert_eq!(fs::read(shared.join("1-2")).unwrap(), b"code");
    }

    /// Two workers copy one module at the same time, and a third bundle links the first copy.
    #[test]
    fn module_that_is_shared_already_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        let handle = shared_modules(&shared).unwrap();
        fs::write(shared.join("1-2"), b"code").unwrap();
        let first = fs::metadata(shared.join("1-2")).unwrap().ino();
        let draft = DraftDirectory::create(folder.path(), Uid::effective().as_raw()).unwrap();
        let at = |name: &str| draft.directory.path().join(name);
        fs::create_dir(at(NEW_MODULES)).unwrap();
        fs::create_dir(at(BUNDLE)).unwrap();
        fs::write(at(BUNDLE).join("a"), b"code").unwrap();
        fs::hard_link(at(BUNDLE).join("a"), at(NEW_MODULES).join("1-2")).unwrap();
        draft.take_back().unwrap();
        draft.settle_modules(&handle).unwrap();
        assert_eq!(fs::metadata(shared.join("1-2")).unwrap().ino(), first);
        assert_eq!(fs::metadata(at(BUNDLE).join("a")).unwrap().nlink(), 1);
    }
}
