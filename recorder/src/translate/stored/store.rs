//! Keeps units for the processes of a recording, and in a directory for later recordings.

use super::file;
use super::harvest::{harvest, is_what_is_translated};
use super::key::{EXTENSION, UnitKey};
use super::unit::IndexedUnit;
use crate::TranslationDirectory;
use crate::translate::block::BlockOptions;
use crate::translate::cache::CacheRemains;
use rustc_hash::FxHashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The maximum number of ended caches that wait, to bound memory.
const MOST_WAITING: usize = 4;
/// Larger files are not read.
const MAX_FILE: u64 = 1 << 30;

/// The cache of an ended address space, and the mappings whose translations may be kept.
#[derive(Debug)]
pub(in crate::translate) struct EndedCache {
    pub(in crate::translate) options: BlockOptions,
    pub(in crate::translate) remains: CacheRemains,
    pub(in crate::translate) mappings: Vec<(UnitKey, Range<u64>)>,
}

/// The units of a recording.
#[derive(Debug)]
pub(crate) struct CodeStore {
    shared: Arc<SharedUnits>,
    /// A thread builds and writes units.
    builder: Option<(SyncSender<EndedCache>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct SharedUnits {
    /// The known units. `None`: there is none in the directory.
    units: Mutex<FxHashMap<UnitKey, Option<Arc<IndexedUnit>>>>,
    directory: Option<PathBuf>,
}

impl CodeStore {
    /// Starts a store. It keeps units in `directory` too.
    ///
    /// # Errors
    /// Fails if no thread can be started. A directory that cannot be used is not used.
    pub(crate) fn start(directory: Option<TranslationDirectory>) -> io::Result<Self> {
        let limit = directory.as_ref().map_or(0, |directory| directory.limit);
        let directory = directory
            .map(|directory| directory.path)
            .filter(|path| prepare(path).is_ok());
        let shared = Arc::new(SharedUnits {
            units: Mutex::default(),
            directory,
        });
        let (sender, ended) = mpsc::sync_channel::<EndedCache>(MOST_WAITING);
        let built = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("bt-translations".to_owned());
        let thread = builder.spawn(move || {
            for cache in ended {
                built.add(&cache);
            }
            if let Some(directory) = &built.directory {
                // A later recording removes the files that are left.
                let _ = limit_size(directory, limit);
            }
        })?;
        Ok(Self {
            shared,
            builder: Some((sender, thread)),
        })
    }

    /// Returns the unit with this key, if there is one.
    pub(in crate::translate) fn find(&self, key: UnitKey) -> Option<Arc<IndexedUnit>> {
        if let Some(known) = self.shared.units().get(&key) {
            return known.clone();
        }
        let found = self.shared.read(key).map(Arc::new);
        self.shared.units().entry(key).or_insert(found).clone()
    }

    /// Keeps the translations of an ended address space.
    pub(in crate::translate) fn add(&self, ended: EndedCache) {
        if let Some((sender, _)) = &self.builder {
            // If many processes end at once, other ones will have the same code.
            let _ = sender.try_send(ended);
        }
    }
}

impl Drop for CodeStore {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.builder.take() {
            drop(sender);
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "stored translations are wrong");
        }
    }
}

impl SharedUnits {
    fn units(&self) -> MutexGuard<'_, FxHashMap<UnitKey, Option<Arc<IndexedUnit>>>> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, key: UnitKey) -> Option<IndexedUnit> {
        let path = self.directory.as_ref()?.join(key.file_name());
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || !is_own(&metadata) || metadata.len() > MAX_FILE {
            return None;
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        file.read_to_end(&mut bytes).ok()?;
        // The time of the last use decides which files are removed first.
        let _ = file.set_modified(std::time::SystemTime::now());
        file::decode(key, &bytes).map(IndexedUnit::new)
    }

    /// Builds the units of an ended cache, where they have more blocks than the known ones.
    fn add(&self, ended: &EndedCache) {
        for (key, range) in &ended.mappings {
            let Some(unit) = harvest(&ended.remains, range) else {
                continue;
            };
            debug_assert!(is_what_is_translated(&unit, ended.options));
            let known = self.units().get(key).cloned().flatten();
            if known.is_some_and(|known| known.blocks.len() >= unit.blocks.len()) {
                continue;
            }
            if let Some(directory) = &self.directory {
                // Without the file, a later recording translates again.
                let _ = write(directory, &key.file_name(), &file::encode(*key, &unit));
            }
            self.units().insert(*key, Some(Arc::new(IndexedUnit::new(unit))));
        }
    }
}

/// Creates the directory, and checks that only its owner can write to it.
fn prepare(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let metadata = fs::symlink_metadata(directory)?;
    match metadata.is_dir() && is_own(&metadata) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Returns whether a file or directory belongs to this user, and no other user can write to it.
fn is_own(metadata: &Metadata) -> bool {
    /// The write permissions of group and others.
    const OF_OTHERS: u32 = 0o022;
    own_user().is_some_and(|user| user == metadata.uid()) && metadata.mode() & OF_OTHERS == 0
}

/// Returns the effective user of this process.
fn own_user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}

/// Writes a file so that readers see all of it or nothing.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.{}", std::process::id()));
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, directory.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes the files that were not used for longest, until the others have at most `limit` bytes.
fn limit_size(directory: &Path, limit: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && entry.file_name().to_string_lossy().contains(EXTENSION) {
            files.push((metadata.modified()?, metadata.len(), entry.path()));
        }
    }
    files.sort();
    let mut size: u64 = files.iter().map(|(_, len, _)| len).sum();
    for (_, len, path) in files {
        if size <= limit {
            break;
        }
        fs::remove_file(path)?;
        size -= len;
    }
    Ok(())
}
