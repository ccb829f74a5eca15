//! Stores one copy of each module that several bundles share, by hard links.
//!
//! A copy is identified by its original file (device, inode, size, times). The build id alone is
//! not enough, because anyone can write one into a file.

use crate::module_file::{self, Allowance};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A directory of shared copies.
#[derive(Debug)]
pub(crate) struct ModuleStore {
    directory: PathBuf,
}

impl ModuleStore {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Creates a hard link at `target` to the shared copy of `file`, and makes the copy first if
    /// needed. Returns `None` if that failed; nothing is left at `target` then.
    pub(crate) fn link(&self, file: &File, id: &str, target: &Path) -> Option<()> {
        let seen = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let name = format!(
            "{id}-{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
            seen.dev(),
            seen.ino(),
            seen.len(),
            seen.mtime(),
            seen.mtime_nsec(),
            seen.ctime(),
            seen.ctime_nsec(),
        );
        let kept = self.directory.join(name);
        if fs::hard_link(&kept, target).is_ok() {
            return Some(());
        }
        fs::create_dir_all(&self.directory).ok()?;
        // Use a temporary name first: another thread may make the same copy, and either one will
        // do.
        let copy = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(&self.directory)
            .ok()?;
        module_file::copy(file, copy.as_file(), &mut Allowance::UNLIMITED.clone(), || Ok(())).ok()?;
        copy.as_file().sync_all().ok()?;
        copy.as_file()
            .set_permissions(fs::Permissions::from_mode(0o644))
            .ok()?;
        copy.persist(&kept).ok()?;
        fs::hard_link(&kept, target).ok()
    }

    /// Removes copies that no bundle links to.
    pub(crate) fn remove_unused(directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.metadata().is_ok_and(|metadata| metadata.nlink() == 1) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_copy_is_removed_with_its_last_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("lib"), b"code").unwrap();
        let open = |name: &str| File::open(at(name)).unwrap();
        let store = ModuleStore::new(at("store"));
        store.link(&open("lib"), "id", &at("a")).unwrap();
        store.link(&open("lib"), "id", &at("b")).unwrap();
        let inode = |name| fs::metadata(at(name)).unwrap().ino();
        assert_eq!(inode("a"), inode("b"));
        assert_ne!(
            inode("a"),
            inode("lib"),
            "rewriting the original in place leaves the copy unchanged"
        );
        assert_eq!(fs::read(at("a")).unwrap(), b"code");
        ModuleStore::remove_unused(&at("store"));
        assert_eq!(fs::read_dir(at("store")).unwrap().count(), 1);
        fs::remove_file(at("a")).unwrap();
        fs::remove_file(at("b")).unwrap();
        ModuleStore::remove_unused(&at("store"));
        assert_eq!(fs::read_dir(at("store")).unwrap().count(), 0);
    }

    #[test]
    fn same_build_id_in_another_file_is_another_copy() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("true"), b"true").unwrap();
        fs::write(at("forged"), b"forged").unwrap();
        let open = |name: &str| File::open(at(name)).unwrap();
        let store = ModuleStore::new(at("store"));
        store.link(&open("forged"), "id", &at("a")).unwrap();
        store.link(&open("true"), "id", &at("b")).unwrap();
        assert_eq!(fs::read(at("b")).unwrap(), b"true");
    }
}
