//! Writing a bundle: into a directory beside the target, which takes its name only when all is there.

use crate::manifest::Meta;
use crate::module_file::{self, Allowance};
use crate::module_store::ModuleStore;
use crate::schema::{META_JSON, TRACE_JSON, encode_meta, encode_trace};
use crate::{Bundle, BundlePath, CodeVersions, Error, Manifest, Result, Stop, durable};
use backtrail_pt::BuildId;
use nix::fcntl::{Flock, FlockArg};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How the names of directories in the making begin.
const PREFIX: &str = ".backtrail-";

/// Whether a bundle that stands at the target gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse.
    Never,
    /// Refuse, and say that `--overwrite` replaces it.
    IfAsked,
    /// Replace it; anything else but a bundle is refused all the same.
    Bundle,
}

impl Overwrite {
    /// As somebody asks for it who has the option `--overwrite`.
    #[must_use]
    pub fn asked(asked: bool) -> Self {
        match asked {
            true => Self::Bundle,
            false => Self::IfAsked,
        }
    }
}

/// A file as it was at some time: device, inode, size, and the times of its last changes.
///
/// A path is not enough: `/proc/self/fd/7` names another file after the descriptor was closed.
type FileState = (u64, u64, u64, (i64, i64), (i64, i64));

/// Reads the state of the file at `path`.
fn file_state(path: &Path) -> std::io::Result<FileState> {
    let seen = fs::metadata(path)?;
    Ok((
        seen.dev(),
        seen.ino(),
        seen.len(),
        (seen.mtime(), seen.mtime_nsec()),
        (seen.ctime(), seen.ctime_nsec()),
    ))
}

/// A bundle in the making. Dropped before [`Self::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Writer {
    target: PathBuf,
    temporary: TempDir,
    /// The modules copied so far, by the files that they are copies of.
    modules: RefCell<HashMap<FileState, (BundlePath, Option<BuildId>)>>,
    /// Where modules are kept that several bundles share.
    store: Option<ModuleStore>,
    /// Ends long work on it.
    stop: Stop,
    /// Held while the bundle is in the making, so that [`Self::remove_abandoned`] leaves it alone.
    lock: Flock<File>,
}

impl Writer {
    /// Begins a bundle that will stand at `target`.
    ///
    /// # Errors
    /// When `target` is taken (an empty directory is not), or its parent cannot be written.
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
        let lock = lock(temporary.path()).map_err(Error::io("lock", temporary.path()))?;
        Ok(Self {
            target: target.to_owned(),
            temporary,
            modules: RefCell::default(),
            store: None,
            stop: Stop::default(),
            lock,
        })
    }

    /// Has adding files end, and the bundle be given up, when `stop` comes.
    #[must_use]
    pub(crate) fn until(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// The wish that work on it end.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Keeps one copy of each module in `directory`, on the same file system, for all the bundles that are given
    /// it: they have hard links to it.
    #[must_use]
    pub fn sharing_modules(mut self, directory: PathBuf) -> Self {
        self.store = Some(ModuleStore::new(directory));
        self
    }

    /// Removes the modules in a directory of [`Self::sharing_modules`] that no bundle has any more.
    pub fn remove_unused_modules(directory: &Path) {
        ModuleStore::remove_unused(directory);
    }

    /// Removes what writers that were killed have left in a directory; how many there were.
    ///
    /// # Errors
    /// When the directory cannot be read. What cannot be removed is left.
    pub fn remove_abandoned(directory: &Path) -> Result<usize> {
        let mut removed = 0;
        for entry in fs::read_dir(directory)
            .map_err(Error::io("read", directory))?
            .flatten()
        {
            let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let free = ours.then(|| lock(&entry.path()).ok()).flatten();
            if free.is_some() && fs::remove_dir_all(entry.path()).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Where the files stand for now.
    pub(crate) fn root(&self) -> &Path {
        self.temporary.path()
    }

    /// Creates a file, for the caller to fill.
    ///
    /// # Errors
    /// When it exists already or cannot be created.
    pub fn create_file(&self, path: &BundlePath) -> Result<File> {
        let target = self.place(path)?;
        File::create_new(&target).map_err(Error::io("create", &target))
    }

    /// Creates a file of these bytes.
    ///
    /// # Errors
    /// As [`Self::create_file`].
    pub fn add_bytes(&self, path: &BundlePath, bytes: &[u8]) -> Result<()> {
        let mut file = self.create_file(path)?;
        let written = self.stop.write(bytes, &mut file);
        written.map_err(Error::io("write", &self.target))
    }

    /// Copies a file from outside; a sparse or reflinked copy where the file system can.
    ///
    /// # Errors
    /// When it cannot be read, or as [`Self::create_file`].
    pub fn add_file(&self, path: &BundlePath, source: &Path) -> Result<()> {
        if !source.is_file() {
            return Err(Error::malformed(source.display(), "this is not a regular file"));
        }
        let from = File::open(source).map_err(Error::io("copy", source))?;
        let mut target = self.create_file(path)?;
        let copied = self.stop.copy(&from, &mut target).map(drop);
        if copied.is_err() {
            // Half of it would be taken for the whole.
            self.remove_file(path);
        }
        copied.map_err(Error::io("copy", source))
    }

    /// Copies the ELF file `source`, which the traced system had at `system_path`, to
    /// `modules/ID/NAME`: ID is the build id, or a fingerprint of a file that has none.
    /// A file that is there already is not copied again.
    ///
    /// # Errors
    /// When it cannot be read or is no ELF file.
    pub fn add_module(&self, source: &Path, system_path: &str) -> Result<(BundlePath, Option<BuildId>)> {
        let state = file_state(source).map_err(Error::io("read", source))?;
        if let Some(known) = self.modules.borrow().get(&state) {
            return Ok(known.clone());
        }
        if !source.is_file() {
            return Err(Error::malformed(source.display(), "this is not a regular file"));
        }
        let file = File::open(source).map_err(Error::io("open", source))?;
        let added = self.add_module_file(&file, system_path, None, &mut Allowance::UNLIMITED.clone())?;
        self.modules.borrow_mut().insert(state, added.clone());
        Ok(added)
    }

    /// As [`Self::add_module`], of an open file, which is read and never mapped. What is copied counts against the
    /// allowance. `ready` is a copy of the file that was made before, on the same file system; it is moved to its place.
    ///
    /// # Errors
    /// When it cannot be read or is no ELF file, or the allowance is used up.
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
        let place = self.place(&path)?;
        if place.exists() {
            return Ok((path, build_id));
        }
        let ready = ready.is_some_and(|ready| fs::rename(ready, &place).is_ok());
        let shared = || {
            self.store
                .as_ref()
                .is_some_and(|store| store.link(file, &id, &place).is_some())
        };
        if !ready && !shared() {
            let target = File::create_new(&place).map_err(Error::io("create", &place))?;
            let copied = module_file::copy(file, &target, allowance, || self.stop.look());
            if let Err(error) = copied {
                let _ = fs::remove_file(&place);
                return Err(Error::io("copy", system_path.as_ref())(error));
            }
        }
        Ok((path, build_id))
    }

    /// Removes the modules copied so far that are not among `wanted`.
    pub fn retain_modules(&self, wanted: &HashSet<BundlePath>) {
        self.modules.borrow_mut().retain(|_, (path, _)| {
            let keep = wanted.contains(path);
            if !keep {
                self.remove_file(path);
                // Another module of the same build may be in the directory.
                let directory = self.root().join(path.as_str());
                let _ = directory.parent().map(fs::remove_dir);
            }
            keep
        });
    }

    /// Removes a file that was added; one that is gone already is no error.
    pub fn remove_file(&self, path: &BundlePath) {
        let _ = fs::remove_file(self.root().join(path.as_str()));
    }

    /// Returns where a file that was added is until the bundle is finished.
    #[must_use]
    pub fn place_of(&self, path: &BundlePath) -> PathBuf {
        self.root().join(path.as_str())
    }

    /// Adds the file that [`Process::versions`](crate::manifest::Process::versions) is to name.
    ///
    /// # Errors
    /// When a fragment is empty or too long, or boundaries are not in order; or as
    /// [`Self::create_file`].
    pub fn add_code_versions(&self, path: &BundlePath, versions: &CodeVersions) -> Result<()> {
        self.add_bytes(path, &versions.encode(path)?)
    }

    /// Writes the descriptions, has the whole read back, and moves it to its place.
    ///
    /// # Errors
    /// When `manifest` names a file that was not added or breaks a rule of the schema; then
    /// nothing stands at the target.
    pub fn finish(self, manifest: &Manifest) -> Result<()> {
        self.add_json(TRACE_JSON, &encode_trace(manifest))?;
        self.add_json(META_JSON, &encode_meta(&manifest.meta))?;
        Bundle::open(self.root())?;
        self.publish()
    }

    /// As [`Self::finish`], and what stands at the target survives a loss of power from then on.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_durably(self, manifest: &Manifest) -> Result<()> {
        self.add_json(TRACE_JSON, &encode_trace(manifest))?;
        self.add_json(META_JSON, &encode_meta(&manifest.meta))?;
        Bundle::open(self.root())?;
        durable::sync_tree(self.root())?;
        let target = self.target.clone();
        self.publish()?;
        durable::sync_directory(target.parent().unwrap_or(Path::new(".")))
    }

    /// As [`Self::finish`], and refuses all that [`crate::check`] would: for what comes from
    /// other tools.
    pub(crate) fn finish_checked(self, manifest: &Manifest) -> Result<()> {
        self.add_json(TRACE_JSON, &encode_trace(manifest))?;
        self.add_json(META_JSON, &encode_meta(&manifest.meta))?;
        self.stop.check()?;
        match crate::check(self.root())?.findings.into_iter().next() {
            Some(finding) => Err(finding),
            None => self.publish(),
        }
    }

    /// Moves the directory to the target.
    pub(crate) fn publish(self) -> Result<()> {
        // It may have all of a process's memory: it is its owner's alone, as a core is.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(self.root(), mode).map_err(Error::io("change", self.temporary.path()))?;
        let Self {
            target,
            temporary,
            lock,
            ..
        } = self;
        // Checked when begun; a bundle may only now give way.
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

    /// Replaces the description of a bundle that was unpacked here.
    pub(crate) fn replace_meta(&self, meta: &Meta) -> Result<()> {
        let path = self.root().join(META_JSON);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(Error::io("replace", &path))?;
        }
        self.add_json(META_JSON, &encode_meta(meta))
    }

    /// Where a file of the bundle in the making stands for now.
    #[must_use]
    pub fn current_place(&self, path: &BundlePath) -> PathBuf {
        self.root().join(path.as_str())
    }

    fn add_json(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        self.add_bytes(&BundlePath::new(name)?, format!("{value:#}\n").as_bytes())
    }

    /// The file's place for now, its directory made.
    fn place(&self, path: &BundlePath) -> Result<PathBuf> {
        let target = self.root().join(path.as_str());
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        Ok(target)
    }
}

/// Takes a directory's lock, if nobody has it.
fn lock(directory: &Path) -> std::io::Result<Flock<File>> {
    Flock::lock(File::open(directory)?, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

/// Refuses a target that is taken.
fn check_target(target: &Path, overwrite: Overwrite) -> Result<()> {
    let taken = |what, hint| {
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
        return taken("not a directory", "");
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
        (true, Overwrite::IfAsked) => taken("a bundle", " or replace it with --overwrite"),
        (true, Overwrite::Never) => taken("a bundle", ""),
        (false, _) => taken("a directory that holds other files", ""),
    }
}

/// A file name of the path's last part that is safe everywhere, and short enough for a plain tar
/// header.
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
    fn what_a_killed_writer_left_is_removed_and_what_is_in_the_making_is_not() {
        let place = tempfile::tempdir().unwrap();
        let writer = Writer::create(&place.path().join("bundle"), Overwrite::Never).unwrap();
        fs::create_dir(place.path().join(format!("{PREFIX}left"))).unwrap();
        fs::write(place.path().join(format!("{PREFIX}left/core")), b"half").unwrap();
        fs::create_dir(place.path().join("other")).unwrap();
        assert_eq!(Writer::remove_abandoned(place.path()).unwrap(), 1);
        assert!(writer.root().is_dir() && place.path().join("other").is_dir());
        drop(writer);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
