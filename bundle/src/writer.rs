//! Writes a bundle into a temporary directory beside the target, which gets its name when complete.

use crate::file_lock::FileLock;
use crate::manifest::Manifest;
use crate::manifest::Meta;
use crate::module_file::{self, Allowance};
#[cfg(target_os = "linux")]
use crate::module_store::ModuleStore;
use crate::platform::{self, FileIdentity};
use crate::schema::{META_JSON, TRACE_JSON, encode_meta, encode_trace};
use crate::supplementary::{self, Link};
use crate::versions::CodeVersions;
use crate::{Bundle, BundlePath, CancelToken, Error, Result, durable};
use backtrail_pt::BuildId;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The prefix of the temporary directories.
const PREFIX: &str = ".backtrail-";

/// The treatment of an existing bundle at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse.
    Never,
    /// Refuse, and suggest `--overwrite`.
    SuggestFlag,
    /// Replace a bundle. Anything else is refused.
    Bundle,
}

impl Overwrite {
    /// Returns the treatment for the value of the option `--overwrite`.
    #[must_use]
    pub fn from_flag(overwrite: bool) -> Self {
        match overwrite {
            true => Self::Bundle,
            false => Self::SuggestFlag,
        }
    }
}

/// A bundle that is being written. If it is dropped before [`Self::finish`], everything is removed.
#[derive(Debug)]
pub struct Writer {
    target: PathBuf,
    temporary: TempDir,
    /// The modules copied so far, by the state of the original file.
    modules: RefCell<HashMap<FileIdentity, (BundlePath, Option<BuildId>)>>,
    /// The store of modules that several bundles share.
    #[cfg(target_os = "linux")]
    store: Option<ModuleStore>,
    /// Cancels the work on this bundle.
    cancel: CancelToken,
    /// Locked while the bundle is written, so that [`Self::remove_abandoned`] skips it.
    lock: FileLock,
}

impl Writer {
    /// Starts to write a bundle for `target`.
    ///
    /// # Errors
    /// Fails if `target` exists (other than as an empty directory), or if its parent is not
    /// writable.
    pub fn create(target: &Path, overwrite: Overwrite) -> Result<Self> {
        check_target(target, overwrite)?;
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let temporary = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .map_err(Error::io("create a directory in", parent))?;
        let lock = platform::lock_directory(temporary.path()).map_err(Error::io("lock", temporary.path()))?;
        Ok(Self {
            target: target.to_owned(),
            temporary,
            modules: RefCell::default(),
            #[cfg(target_os = "linux")]
            store: None,
            cancel: CancelToken::default(),
            lock,
        })
    }

    /// Makes adding files fail once `cancel` is set.
    #[must_use]
    pub(crate) fn canceled_by(mut self, cancel: &CancelToken) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Returns the token that cancels the work.
    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// Stores one copy of each module in `directory`, and adds hard links to it. The directory must
    /// be on the same file system; several writers may share it.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn sharing_modules(mut self, directory: PathBuf) -> Self {
        self.store = Some(ModuleStore::new(directory));
        self
    }

    /// Removes the modules in a directory of [`Self::sharing_modules`] that no bundle links to.
    #[cfg(target_os = "linux")]
    pub fn remove_unused_modules(directory: &Path) {
        ModuleStore::remove_unused(directory);
    }

    /// Removes the temporary directories of killed writers in `directory`, and returns their
    /// number.
    ///
    /// # Errors
    /// Fails if the directory cannot be read. Entries that cannot be removed are left.
    #[cfg(target_os = "linux")]
    pub fn remove_abandoned(directory: &Path) -> Result<usize> {
        let mut removed = 0;
        for entry in fs::read_dir(directory)
            .map_err(Error::io("read", directory))?
            .flatten()
        {
            let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let free = ours
                .then(|| platform::lock_directory(&entry.path()).ok())
                .flatten();
            if free.is_some() && fs::remove_dir_all(entry.path()).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Returns the number of unfinished bundles in a directory, of killed writers and of others.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    #[cfg(target_os = "linux")]
    pub fn count_unfinished(directory: &Path) -> Result<usize> {
        let entries = fs::read_dir(directory).map_err(Error::io("read", directory))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        Ok(names
            .filter(|name| name.to_string_lossy().starts_with(PREFIX))
            .count())
    }

    /// Returns the temporary directory.
    pub(crate) fn root(&self) -> &Path {
        self.temporary.path()
    }

    /// Creates a file for the caller to write.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be created.
    pub fn create_file(&self, path: &BundlePath) -> Result<File> {
        let target = self.prepare(path)?;
        File::create_new(&target).map_err(Error::io("create", &target))
    }

    /// Creates a file with these contents.
    ///
    /// # Errors
    /// Fails as [`Self::create_file`] does.
    pub fn add_bytes(&self, path: &BundlePath, bytes: &[u8]) -> Result<()> {
        let mut file = self.create_file(path)?;
        let written = self.cancel.write(bytes, &mut file);
        written.map_err(Error::io("write", &self.target))
    }

    /// Copies a file into the bundle. The copy is sparse or reflinked if the file system supports
    /// it.
    ///
    /// # Errors
    /// Fails if the file cannot be read, and as [`Self::create_file`] does.
    pub fn add_file(&self, path: &BundlePath, source: &Path) -> Result<()> {
        if !source.is_file() {
            return Err(Error::malformed(source.display(), "this is not a regular file"));
        }
        let from = File::open(source).map_err(Error::io("copy", source))?;
        let mut target = self.create_file(path)?;
        let copied = self.cancel.copy(&from, &mut target).map(drop);
        if copied.is_err() {
            // A partial copy could be mistaken for a complete one.
            self.remove_file(path);
        }
        copied.map_err(Error::io("copy", source))
    }

    /// Copies the ELF file `source` to `modules/ID/NAME`. `system_path` is its path on the traced
    /// system. ID is the build id, or a fingerprint if the file has none. A file that exists there
    /// is not copied again.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if it is not an ELF file.
    pub fn add_module(&self, source: &Path, system_path: &str) -> Result<(BundlePath, Option<BuildId>)> {
        let state = platform::identity(source).map_err(Error::io("read", source))?;
        if let Some(known) = self.modules.borrow().get(&state) {
            return Ok(known.clone());
        }
        if !source.is_file() {
            return Err(Error::malformed(source.display(), "this is not a regular file"));
        }
        let file = File::open(source).map_err(Error::io("open", source))?;
        let added = self.add_module_file(&file, system_path, None, &mut Allowance::UNLIMITED.clone())?;
        self.add_supplementary(&file, &source.to_string_lossy(), supplementary::open_regular)?;
        self.modules.borrow_mut().insert(state, added.clone());
        Ok(added)
    }

    /// Copies the supplementary debug file that `module` names, if it names one and `open` finds
    /// it. `system_path` is the path of the module. Readers search the copy by its build id.
    ///
    /// # Errors
    /// Fails if the copy cannot be written.
    pub fn add_supplementary(
        &self,
        module: &File,
        system_path: &str,
        open: impl Fn(&Path) -> std::io::Result<File>,
    ) -> Result<()> {
        // A module whose sections cannot be read names no file.
        let Some(link) = Link::read(module).ok().flatten() else {
            return Ok(());
        };
        let path = link.path_in_bundle()?;
        if self.temporary_path(&path).exists() {
            return Ok(());
        }
        let Some(found) = link.find(Path::new(system_path), open) else {
            return Ok(());
        };
        let out = self.create_file(&path)?;
        let mut unlimited = Allowance::UNLIMITED;
        let copied = module_file::copy(&found, &out, &mut unlimited, || self.cancel_token().check_io());
        if copied.is_err() {
            self.remove_file(&path);
        }
        copied.map_err(Error::io("copy", &link.path))
    }

    /// Adds a module as [`Self::add_module`] does, from an open file, which is read and never
    /// mapped. The copied bytes count against the allowance. `ready` is an existing copy on the
    /// same file system; it is moved to its target.
    ///
    /// # Errors
    /// Fails if the file cannot be read, if it is not an ELF file, or if the allowance is used up.
    pub fn add_module_file(
        &self,
        file: &File,
        system_path: &str,
        ready: Option<&Path>,
        allowance: &mut Allowance,
    ) -> Result<(BundlePath, Option<BuildId>)> {
        let read = || Error::io("read", system_path.as_ref());
        let build_id = module_file::build_id(file, system_path)?;
        let id = match &build_id {
            Some(id) => id.to_string(),
            None => format!("{:016x}", module_file::fingerprint(file).map_err(read())?),
        };
        let path = BundlePath::new(&format!("modules/{id}/{}", plain_name(system_path)))?;
        let target = self.prepare(&path)?;
        if target.exists() {
            return Ok((path, build_id));
        }
        let ready = ready.is_some_and(|ready| fs::rename(ready, &target).is_ok());
        #[cfg(target_os = "linux")]
        let shared = || {
            self.store
                .as_ref()
                .is_some_and(|store| store.link(file, &id, &target).is_some())
        };
        #[cfg(not(target_os = "linux"))]
        let shared = || false;
        if !ready && !shared() {
            let out = File::create_new(&target).map_err(Error::io("create", &target))?;
            let copied = module_file::copy(file, &out, allowance, || self.cancel.check_io());
            if let Err(error) = copied {
                let _ = fs::remove_file(&target);
                return Err(Error::io("copy", system_path.as_ref())(error));
            }
        }
        Ok((path, build_id))
    }

    /// Removes the modules copied so far that are not in `wanted`.
    pub fn retain_modules(&self, wanted: &HashSet<BundlePath>) {
        self.modules.borrow_mut().retain(|_, (path, _)| {
            let keep = wanted.contains(path);
            if !keep {
                self.remove_file(path);
                // The directory may contain another module of the same build.
                let directory = self.root().join(path.as_str());
                let _ = directory.parent().map(fs::remove_dir);
            }
            keep
        });
    }

    /// Removes a file that was added. A missing file is not an error.
    pub fn remove_file(&self, path: &BundlePath) {
        let _ = fs::remove_file(self.root().join(path.as_str()));
    }

    /// Returns the path of an added file until the bundle is finished.
    #[must_use]
    pub fn temporary_path(&self, path: &BundlePath) -> PathBuf {
        self.root().join(path.as_str())
    }

    /// Adds the file for [`Process::versions`](crate::manifest::Process::versions).
    ///
    /// # Errors
    /// Fails if a fragment is empty or too long, if boundaries are not in order, and as
    /// [`Self::create_file`] does.
    pub fn add_code_versions(&self, path: &BundlePath, versions: &CodeVersions) -> Result<()> {
        self.add_bytes(path, &versions.encode(path)?)
    }

    /// Writes the descriptions, reads the bundle back, and moves it to its target.
    ///
    /// # Errors
    /// Fails if `manifest` names a missing file or breaks a rule of the schema. Nothing is left at
    /// the target then.
    pub fn finish(self, manifest: &Manifest) -> Result<()> {
        self.add_json(TRACE_JSON, &encode_trace(manifest))?;
        self.add_json(META_JSON, &encode_meta(&manifest.meta))?;
        Bundle::open(self.root())?;
        self.publish()
    }

    /// Finishes as [`Self::finish`] does, and syncs the bundle to disk.
    ///
    /// # Errors
    /// Fails as [`Self::finish`] does.
    pub fn finish_durably(self, manifest: &Manifest) -> Result<()> {
        self.add_json(TRACE_JSON, &encode_trace(manifest))?;
        self.add_json(META_JSON, &encode_meta(&manifest.meta))?;
        Bundle::open(self.root())?;
        durable::sync_tree(self.root())?;
        let target = self.target.clone();
        self.publish()?;
        durable::sync_directory(target.parent().unwrap_or(Path::new(".")))
    }

    /// Finishes as [`Self::finish`] does, and refuses everything that [`crate::check`] would
    /// report. Used for imports.
    pub(crate) fn finish_checked(self, manifest: &Manifest) -> Result<()> {
        self.add_json(TRACE_JSON, &encode_trace(manifest))?;
        self.add_json(META_JSON, &encode_meta(&manifest.meta))?;
        self.cancel.check()?;
        match crate::check(self.root())?.findings.into_iter().next() {
            Some(finding) => Err(finding),
            None => self.publish(),
        }
    }

    /// Moves the directory to the target.
    pub(crate) fn publish(self) -> Result<()> {
        // A bundle may contain all memory of a process, so only its owner may read it, like a core.
        platform::make_private(self.root()).map_err(Error::io("change", self.temporary.path()))?;
        let Self {
            target,
            temporary,
            lock,
            ..
        } = self;
        // The target was checked at the start; only a bundle may have to be replaced now.
        let old = match target.symlink_metadata() {
            Ok(_) => {
                let parent = temporary.path().parent().unwrap_or(Path::new("."));
                let aside = tempfile::Builder::new()
                    .prefix(PREFIX)
                    .tempdir_in(parent)
                    .map_err(Error::io("create a directory in", parent))?;
                fs::rename(&target, aside.path().join("bundle")).map_err(Error::io("replace", &target))?;
                Some(aside)
            }
            Err(_) => None,
        };
        let path = temporary.keep();
        drop(lock);
        let moved = fs::rename(&path, &target).map_err(Error::io("create", &target));
        if moved.is_err() {
            let _ = fs::remove_dir_all(&path);
            if let Some(aside) = &old {
                let _ = fs::rename(aside.path().join("bundle"), &target);
            }
        }
        moved
    }

    /// Replaces the metadata of an unpacked bundle.
    pub(crate) fn replace_meta(&self, meta: &Meta) -> Result<()> {
        let path = self.root().join(META_JSON);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(Error::io("replace", &path))?;
        }
        self.add_json(META_JSON, &encode_meta(meta))
    }

    fn add_json(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        self.add_bytes(&BundlePath::new(name)?, format!("{value:#}\n").as_bytes())
    }

    /// Returns the temporary path of a file, and creates its directory.
    fn prepare(&self, path: &BundlePath) -> Result<PathBuf> {
        let target = self.root().join(path.as_str());
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        Ok(target)
    }
}

/// Refuses an existing target.
fn check_target(target: &Path, overwrite: Overwrite) -> Result<()> {
    let exists = |what, hint| {
        Err(Error::TargetExists {
            path: target.to_owned(),
            what,
            hint,
        })
    };
    let Ok(metadata) = target.symlink_metadata() else {
        return Ok(());
    };
    if !metadata.is_dir() {
        return exists("not a directory", "");
    }
    if fs::read_dir(target)
        .map_err(Error::io("read", target))?
        .next()
        .is_none()
    {
        return Ok(());
    }
    match (target.join(TRACE_JSON).is_file(), overwrite) {
        (true, Overwrite::Bundle) => Ok(()),
        (true, Overwrite::SuggestFlag) => exists("a bundle", " or replace it with --overwrite"),
        (true, Overwrite::Never) => exists("a bundle", ""),
        (false, _) => exists("a directory that holds other files", ""),
    }
}

/// Returns a safe file name for the last component of `path`, short enough for a plain tar header.
pub(crate) fn plain_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let plain: String = name
        .chars()
        .take(96)
        .map(|char| {
            if char.is_ascii_alphanumeric() || "._-+".contains(char) {
                char
            } else {
                '_'
            }
        })
        .collect();
    if plain.trim_matches('.').is_empty() {
        "module".to_owned()
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_killed_writers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("bundle"), Overwrite::Never).unwrap();
        fs::create_dir(folder.path().join(format!("{PREFIX}left"))).unwrap();
        fs::write(folder.path().join(format!("{PREFIX}left/core")), b"half").unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        assert_eq!(Writer::remove_abandoned(folder.path()).unwrap(), 1);
        assert!(writer.root().is_dir() && folder.path().join("other").is_dir());
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
