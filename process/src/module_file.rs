//! Module files: one open file for each, even if many processes have mapped it.

use crate::beneath;
use crate::load_segments::LoadSegments;
use crate::maps::Map;
use backtrail_bundle::module_file::Allowance;
use backtrail_bundle::{BundlePath, Writer};
use backtrail_pt::{Avma, BuildId};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The properties that distinguish a file from others, and from itself after it was overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    /// The time of the last change of the content, in seconds and nanoseconds.
    modified: (i64, i64),
}

impl FileState {
    /// Reads the state of an open file.
    pub fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// An ELF file that processes have mapped.
///
/// The descriptor is closed after the file was copied into the bundle, or when the last user drops
/// it.
#[derive(Debug)]
pub struct ModuleFile {
    state: FileState,
    segments: LoadSegments,
    content: Mutex<Content>,
}

/// The location of the content of a module.
#[derive(Debug)]
enum Content {
    /// In the open file, which may be deleted.
    Open(File),
    /// In the bundle.
    Copied(BundlePath, Option<BuildId>),
    /// Unavailable, for this reason.
    Missing(String),
}

impl ModuleFile {
    /// Returns `None` if the file is not an ELF file.
    fn of(file: File, state: FileState) -> Option<Self> {
        Some(Self {
            state,
            segments: LoadSegments::read(&file)?,
            content: Mutex::new(Content::Open(file)),
        })
    }

    /// Returns the address of the page of the lowest `PT_LOAD` for the code mapping `map`.
    pub(crate) fn base_of(&self, map: &Map) -> Option<Avma> {
        self.segments.base(map.start, map.offset)
    }

    /// Returns whether a file in this state is this one, not overwritten since.
    pub(crate) fn is_still(&self, state: FileState) -> bool {
        self.state == state
    }

    /// Reads bytes of the open file, and returns how many.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        match &*self.content() {
            Content::Open(file) => file.read_at(out, offset).unwrap_or(0),
            Content::Copied(..) | Content::Missing(_) => 0,
        }
    }

    /// Copies the file into a bundle once, under the name of `path`, and closes it. A file of
    /// several bundles is copied into each, and stays open.
    ///
    /// # Errors
    /// The reason, if the file cannot be copied.
    pub(crate) fn copy(
        &self,
        writer: &Writer,
        path: &str,
        files: &ModuleFiles,
    ) -> Result<(BundlePath, Option<BuildId>), String> {
        let mut content = self.content();
        if let Content::Open(file) = &*content {
            if FileState::of(file) != Some(self.state) {
                files.forget(self.state);
                let reason = "it was overwritten while the program ran".to_owned();
                *content = Content::Missing(reason.clone());
                return Err(reason);
            }
            let copied = match writer.add_module_file(file, path, None, &mut Allowance::UNLIMITED.clone()) {
                Ok((copy, build_id)) => {
                    // The debug information of the module is incomplete without that file, and says
                    // so.
                    let _ = writer.add_supplementary(file, path, open_regular);
                    if files.has_many_bundles {
                        return Ok((copy, build_id));
                    }
                    Content::Copied(copy, build_id)
                }
                // Descriptors may be available later, and another bundle may have room.
                Err(error) if files.has_many_bundles || ModuleFiles::is_exhausted() => {
                    return Err(error.to_string());
                }
                Err(error) => Content::Missing(error.to_string()),
            };
            // After it is closed, the file may be deleted and its inode reused.
            files.forget(self.state);
            *content = copied;
        }
        match &*content {
            Content::Copied(file, build_id) => Ok((file.clone(), build_id.clone())),
            Content::Missing(reason) => Err(reason.clone()),
            Content::Open(_) => Err("it was not copied".to_owned()),
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a regular file whose path another user may have chosen.
fn open_regular(path: &Path) -> io::Result<File> {
    let root = File::open("/")?;
    beneath::reopen(beneath::open_path(root.as_fd(), path, 0)?)
}

/// The open module files, by their states.
#[derive(Clone, Debug, Default)]
pub struct ModuleFiles {
    files: Arc<Mutex<HashMap<FileState, Weak<ModuleFile>>>>,
    /// Whether each process has its own bundle, so that a copied file is copied again.
    has_many_bundles: bool,
}

impl ModuleFiles {
    /// Returns files that are copied into several bundles. They stay open until the last process
    /// drops them.
    #[must_use]
    pub fn of_many_bundles() -> Self {
        Self {
            has_many_bundles: true,
            ..Self::default()
        }
    }

    /// Returns the number of open files.
    #[must_use]
    pub fn open(&self) -> usize {
        let alive = |file: &&Weak<ModuleFile>| file.strong_count() > 0;
        self.files().values().filter(alive).count()
    }

    /// Returns whether no file descriptor is available.
    pub(crate) fn is_exhausted() -> bool {
        let error = File::open("/dev/null")
            .err()
            .and_then(|error| error.raw_os_error());
        matches!(error, Some(libc::EMFILE | libc::ENFILE))
    }

    /// Returns the shared open file for `file`, or `None` if it is not an ELF file.
    pub(crate) fn share(&self, file: File) -> Option<Arc<ModuleFile>> {
        let state = FileState::of(&file)?;
        let mut files = self.files();
        if let Some(open) = files.get(&state).and_then(Weak::upgrade) {
            return Some(open);
        }
        let file = Arc::new(ModuleFile::of(file, state)?);
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(state, Arc::downgrade(&file));
        Some(file)
    }

    fn forget(&self, state: FileState) {
        self.files().remove(&state);
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileState, Weak<ModuleFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::Overwrite;
    use std::fs;

    fn program() -> File {
        File::open(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn shared_file_is_open_once() {
        let files = ModuleFiles::default();
        let shared: Vec<_> = (0..100).map(|_| files.share(program()).unwrap()).collect();
        assert!(shared.iter().all(|file| Arc::ptr_eq(file, &shared[0])));
        assert_eq!(files.open(), 1);
        drop(shared);
        assert_eq!(files.open(), 0, "the last user has dropped it");
    }

    #[test]
    fn copied_file_is_closed_and_its_inode_is_reusable() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("bundle"), Overwrite::Never).unwrap();
        let files = ModuleFiles::default();
        let file = files.share(program()).unwrap();
        let (copy, _) = file.copy(&writer, "/bin/program", &files).unwrap();
        assert_eq!(files.open(), 0);
        assert!(matches!(*file.content(), Content::Copied(..)));
        assert_eq!(file.copy(&writer, "/bin/program", &files).unwrap().0, copy);
        let again = files.share(program()).unwrap();
        assert!(!Arc::ptr_eq(&file, &again));
    }

    #[test]
    fn file_of_many_bundles_is_copied_into_each() {
        let folder = tempfile::tempdir().unwrap();
        let files = ModuleFiles::of_many_bundles();
        let file = files.share(program()).unwrap();
        for name in ["one", "two"] {
            let writer = Writer::create(&folder.path().join(name), Overwrite::Never).unwrap();
            for _ in 0..2 {
                let (copy, _) = file.copy(&writer, "/bin/program", &files).unwrap();
                assert!(writer.temporary_path(&copy).is_file(), "{name}");
            }
        }
        assert_eq!(files.open(), 1);
    }

    #[test]
    fn deleted_file_is_copied_from_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("bundle"), Overwrite::Never).unwrap();
        let files = ModuleFiles::default();
        let mut copies = Vec::new();
        for name in ["one", "two"] {
            let path = folder.path().join(name);
            fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
            // Each file reuses the descriptor of the previous one, with other content.
            let mut bytes = fs::read(&path).unwrap();
            bytes.extend(name.bytes());
            strip_build_id(&mut bytes);
            fs::write(&path, bytes).unwrap();
            let file = files.share(File::open(&path).unwrap()).unwrap();
            fs::remove_file(&path).unwrap();
            copies.push(file.copy(&writer, "/bin/program", &files).unwrap().0);
        }
        assert_ne!(copies[0], copies[1]);
    }

    #[test]
    fn overwritten_file_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("bundle"), Overwrite::Never).unwrap();
        let files = ModuleFiles::default();
        let path = folder.path().join("module");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let file = files.share(File::open(&path).unwrap()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes.push(0);
        fs::write(&path, bytes).unwrap();
        let now = FileState::of(&File::open(&path).unwrap()).unwrap();
        assert!(!file.is_still(now));
        let again = files.share(File::open(&path).unwrap()).unwrap();
        assert!(!Arc::ptr_eq(&file, &again));
        let error = file.copy(&writer, "/bin/program", &files).unwrap_err();
        assert!(error.contains("overwritten"), "{error}");
        assert!(again.copy(&writer, "/bin/program", &files).is_ok());
    }

    /// Changes the type of build-id notes.
    fn strip_build_id(elf: &mut [u8]) {
        let note = [4u8, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0];
        let at = elf.windows(note.len()).position(|bytes| bytes == note);
        if let Some(at) = at {
            elf[at + 8] = 99;
        }
    }
}
