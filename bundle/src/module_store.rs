//! Modules that many bundles share: one copy, and hard links to it.
//!
//! A copy is known by the file that it is of (device, inode, size, times), not by its build id alone, which
//! anybody can write into a file.

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

    /// Puts a link to the shared copy of `source` at `place`; the copy is made when there is none.
    /// `None`: that cannot be here, and nothing stands at `place`.
    pub(crate) fn link(&self, file: &File, id: &str, place: &Path) -> Option<()> {
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
        if fs::hard_link(&kept, place).is_ok() {
            return Some(());
        }
        fs::create_dir_all(&self.directory).ok()?;
        // Under a name of its own first: another thread may make the same copy, and either will do.
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
        fs::hard_link(&kept, place).ok()
    }

    /// Removes copies that no bundle has any more.
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
    fn one_copy_serves_all_and_goes_with_the_last() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
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
            "what is rewritten in place stays as it was"
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
    fn another_file_of_the_same_build_id_is_another_copy() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("true"), b"true").unwrap();
        fs::write(at("forged"), b"forged").unwrap();
        let open = |name: &str| File::open(at(name)).unwrap();
        let store = ModuleStore::new(at("store"));
        store.link(&open("forged"), "id", &at("a")).unwrap();
        store.link(&open("true"), "id", &at("b")).unwrap();
        assert_eq!(fs::read(at("b")).unwrap(), b"true");
    }
}
