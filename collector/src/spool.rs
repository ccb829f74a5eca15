//! The spool: a directory of crash bundles. The oldest are removed when space is short.
//!
//! A bundle has its name only when it is complete on disk. Names start with an increasing number,
//! so they sort by the order of crashes, independently of the wall clock.

mod entry;
mod eviction;
mod hand_over;

pub use entry::StoredBundle;

use crate::config::Size;
use crate::error::{Error, Result};
use crate::users::{User, Users};
use backtrail_bundle::{Overwrite, Writer};
use entry::MODULES;
use eviction::{Candidate, EvictionOrder};
use nix::sys::statvfs::statvfs;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The file with the number of bundles that were removed unsent.
const DROPPED: &str = ".dropped";
/// The directory of empty files with the names of sent bundles.
const SENT: &str = ".sent";
/// The directory of files with the owning user of each bundle.
const USERS: &str = ".users";
/// A quarter of the limit is reserved for bundles of root and system services.
const RESERVE_DIVISOR: u64 = 4;

/// A directory of bundles.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    limit: AtomicU64,
    free: AtomicU64,
    /// The number of the newest bundle.
    newest: Mutex<u64>,
    /// The measured bundles. A bundle with a name does not change any more.
    usage: Mutex<HashMap<String, BundleUsage>>,
    users: Users,
}

/// The disk usage of a bundle and its owner.
#[derive(Clone, Copy, Debug)]
struct BundleUsage {
    /// Bytes on disk, without shared modules.
    size: u64,
    user: User,
}

/// The reserved name of a bundle that a worker writes.
#[derive(Clone, Debug)]
pub struct ReservedName {
    /// The future name.
    pub id: String,
    /// The future path.
    pub path: PathBuf,
}

/// A bundle that is being written into the spool.
#[derive(Debug)]
pub struct BundleDraft {
    /// The future name.
    pub id: String,
    /// The future path.
    pub path: PathBuf,
    /// The writer of the bundle.
    pub writer: Writer,
}

impl Spool {
    /// Creates the directory if it is missing, and removes unfinished bundles of killed writers.
    ///
    /// # Errors
    /// When the directory cannot be created or read.
    pub fn create(directory: &Path, limit: Size, free: Size) -> Result<Self> {
        // Cores contain secrets of programs. Only the collector's user may read them, unless the
        // directory has other permissions.
        make_directory(directory)?;
        let removed = remove_unfinished(directory)?;
        if removed != 0 {
            tracing::warn!("removed {removed} unfinished bundle(s) of a killed collector");
        }
        let spool = Self::open(directory, limit, free);
        spool.remove_unused_modules();
        spool.remove_unused_users();
        Ok(spool)
    }

    /// Returns the spool at a directory, which need not exist.
    #[must_use]
    pub fn open(directory: &Path, limit: Size, free: Size) -> Self {
        Self {
            directory: directory.to_owned(),
            limit: AtomicU64::new(limit.0),
            free: AtomicU64::new(free.0),
            newest: Mutex::new(0),
            usage: Mutex::default(),
            users: Users::default(),
        }
    }

    /// Replaces the limits.
    pub fn set_limits(&self, limit: Size, free: Size) {
        self.limit.store(limit.0, Ordering::Relaxed);
        self.free.store(free.0, Ordering::Relaxed);
    }

    /// Returns the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the bundles, oldest first. Unreadable ones are marked.
    ///
    /// # Errors
    /// When the directory cannot be read. A missing directory has no bundles.
    pub fn entries(&self) -> Result<Vec<StoredBundle>> {
        let mut found: Vec<StoredBundle> = self.names()?.into_iter().map(|name| self.stored(&name)).collect();
        found.sort_by_key(|stored| entry::number(&stored.id));
        Ok(found)
    }

    /// Finds the bundle by its name, its number, a unique prefix of its name, or `latest`.
    ///
    /// # Errors
    /// [`Error::NoSuchCrash`], [`Error::Ambiguous`], or as [`Self::entries`].
    pub fn find(&self, id: &str) -> Result<StoredBundle> {
        let mut names = self.names()?;
        names.sort_by_key(|name| entry::number(name));
        let missing = || Error::NoSuchCrash {
            id: id.to_owned(),
            spool: self.directory.clone(),
        };
        if id == "latest" {
            return names.last().map(|name| self.stored(name)).ok_or_else(missing);
        }
        let asked: Option<u64> = id.parse().ok();
        let exact = names
            .iter()
            .find(|name| *name == id || (asked.is_some() && entry::number(name) == asked));
        if let Some(name) = exact {
            return Ok(self.stored(name));
        }
        let starts: Vec<&String> = names
            .iter()
            .filter(|name| !id.is_empty() && name.starts_with(id))
            .collect();
        match starts.as_slice() {
            [] => Err(missing()),
            [name] => Ok(self.stored(name)),
            several => Err(Error::Ambiguous {
                id: id.to_owned(),
                count: several.len(),
                spool: self.directory.clone(),
            }),
        }
    }

    fn stored(&self, name: &str) -> StoredBundle {
        let mut stored = StoredBundle::read(&self.directory.join(name));
        stored.sent = self.directory.join(SENT).join(name).exists();
        stored
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file("read", &self.directory)(error)),
        };
        Ok(entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| entry::number(name).is_some())
            .collect())
    }

    /// Starts a bundle for a crash of `program` (its short name).
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn begin(&self, program: &str, pid: u32) -> Result<BundleDraft> {
        let id = entry::name(self.next_number()?, program, pid);
        let path = self.directory.join(&id);
        let modules = self.modules_of(User::ROOT);
        self.record_user(&id, User::ROOT)?;
        let writer = Writer::create(&path, Overwrite::Never)?.sharing_modules(modules);
        Ok(BundleDraft { id, path, writer })
    }

    /// Records the user who owns a bundle. The bundle's own content is not trusted for this.
    fn record_user(&self, id: &str, user: User) -> Result<()> {
        if user == User::UNKNOWN {
            return Ok(());
        }
        let directory = self.directory.join(USERS);
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join(id), user.id.to_string()))
            .map_err(Error::file("write to", &directory))
    }

    /// Returns the user that [`Self::record_user`] recorded for a bundle.
    fn user_of(&self, id: &str) -> User {
        let text = fs::read_to_string(self.directory.join(USERS).join(id)).unwrap_or_default();
        let user = text.trim().parse();
        user.map_or(User::UNKNOWN, |user| self.users.owner_of(user))
    }

    /// Removes the records of bundles that no longer exist.
    fn remove_unused_users(&self) {
        let directory = self.directory.join(USERS);
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !self.directory.join(entry.file_name()).exists() {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn next_number(&self) -> Result<u64> {
        let there = self.names()?.iter().filter_map(|name| entry::number(name)).max();
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = (*newest).max(there.unwrap_or(0)) + 1;
        Ok(*newest)
    }

    /// Reserves the name of a bundle that a worker will write.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn reserve(&self, program: &str, pid: u32) -> Result<ReservedName> {
        let id = entry::name(self.next_number()?, program, pid);
        let path = self.directory.join(&id);
        Ok(ReservedName { id, path })
    }

    /// Hands over a finished bundle ([`Self::hand_over`]) of a user's process, and moves it to its
    /// reserved name. From then on it survives a power loss.
    ///
    /// # Errors
    /// When the bundle cannot be handed over or moved.
    pub fn publish(&self, bundle: &Path, reserved: &ReservedName, user: User) -> Result<()> {
        self.hand_over(bundle, user)?;
        // The daemon knows the owner. The bundle's content comes from a worker.
        let size = entry::size(bundle);
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.insert(reserved.id.clone(), BundleUsage { size, user });
        drop(usage);
        self.record_user(&reserved.id, user)?;
        fs::rename(bundle, &reserved.path).map_err(Error::file("create", &reserved.path))?;
        let directory = fs::File::open(&self.directory).and_then(|directory| directory.sync_all());
        directory.map_err(Error::file("write", &self.directory))
    }

    /// Returns the directory of modules that bundles of a user share. Each user has a separate
    /// directory, so that no module from one user's process gets into another user's bundle.
    #[must_use]
    pub fn modules_of(&self, user: User) -> PathBuf {
        self.directory.join(MODULES).join(user.id.to_string())
    }

    /// Removes shared modules that no bundle uses.
    fn remove_unused_modules(&self) {
        for entry in fs::read_dir(self.directory.join(MODULES))
            .into_iter()
            .flatten()
            .flatten()
        {
            Writer::remove_unused_modules(&entry.path());
        }
    }

    /// Returns how many bytes a bundle may use without violating the free-space limit.
    ///
    /// # Errors
    /// When no space is left, or the disk cannot be queried.
    pub fn room(&self) -> Result<u64> {
        let found = statvfs(&self.directory).map_err(Error::system("query the spool's disk"))?;
        let free = found.blocks_available().saturating_mul(found.fragment_size());
        let reserve = self.free.load(Ordering::Relaxed);
        match free.checked_sub(reserve) {
            Some(room @ 1..) => Ok(room),
            _ => Err(Error::Unable("the spool's disk is full".to_owned())),
        }
    }

    /// Removes bundles until the limits are kept: first sent ones, then the oldest of the user
    /// whose bundles use most space. Bundles of system users stay while they use at most a quarter
    /// of the limit. The newest bundle always stays. Returns how many unsent bundles were removed.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn make_room(&self) -> Result<u64> {
        let mut names = self.names()?;
        names.sort_by_key(|name| entry::number(name));
        let mut bundles = self.measure(names);
        let shared = entry::size(&self.directory.join(MODULES));
        let mut total = shared + bundles.iter().map(|bundle| bundle.size).sum::<u64>();
        let limit = self.limit.load(Ordering::Relaxed);
        let Some(newest) = bundles.pop() else { return Ok(0) };
        if total <= limit && self.has_free() {
            return Ok(0);
        }
        let modules = self.shared_modules();
        let mut eviction = EvictionOrder::new(bundles, &newest, limit / RESERVE_DIVISOR);
        let mut dropped = 0;
        while total > limit || !self.has_free() {
            let Some(bundle) = eviction.take() else { break };
            let path = self.directory.join(&bundle.name);
            let unused = entry::last_links(&path);
            if remove(&path).is_err() {
                continue;
            }
            total = total.saturating_sub(bundle.size);
            let sent = self.directory.join(SENT).join(&bundle.name);
            if fs::remove_file(&sent).is_err() {
                dropped += 1;
            }
            let _ = fs::remove_file(self.directory.join(USERS).join(&bundle.name));
            let unused = unused.iter().filter_map(|inode| modules.get(inode));
            for module in unused {
                let found = module.symlink_metadata().ok();
                // A bundle that is being written may have linked it since then.
                if let Some(found) = found.filter(|found| found.nlink() == 1)
                    && fs::remove_file(module).is_ok()
                {
                    total = total.saturating_sub(found.blocks() * 512);
                }
            }
        }
        if dropped != 0 {
            tracing::warn!("removed {dropped} crash(es) that were not sent, to make room in the spool");
            let path = self.directory.join(DROPPED);
            let _ = fs::write(path, (self.dropped() + dropped).to_string());
        }
        Ok(dropped)
    }

    /// Returns the shared modules by inode.
    fn shared_modules(&self) -> HashMap<u64, PathBuf> {
        let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        inside(&self.directory.join(MODULES))
            .flat_map(|user| inside(&user.path()))
            .map(|entry| (entry.ino(), entry.path()))
            .collect()
    }

    /// Returns the size, owner and sent state of each bundle.
    fn measure(&self, names: Vec<String>) -> Vec<Candidate> {
        let sent = self.sent_names();
        let mut known = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usage = HashMap::with_capacity(names.len());
        let mut candidates = Vec::with_capacity(names.len());
        for name in names {
            let BundleUsage { size, user } = known.get(&name).copied().unwrap_or_else(|| {
                let path = self.directory.join(&name);
                BundleUsage {
                    size: entry::size(&path),
                    user: self.user_of(&name),
                }
            });
            usage.insert(name.clone(), BundleUsage { size, user });
            let is_sent = sent.contains(std::ffi::OsStr::new(&name));
            candidates.push(Candidate {
                name,
                size,
                user,
                is_sent,
            });
        }
        *known = usage;
        candidates
    }

    /// Gives a finished bundle, which another user may have written, to the owner and group of the
    /// spool. The group can read the bundle and its shared modules exactly if it can read the
    /// spool.
    ///
    /// # Errors
    /// When the bundle contains a link, a special file, a file with another link or owner, or too
    /// many entries or levels. Also when the kernel refuses. A part may have been changed by then.
    pub fn hand_over(&self, bundle: &Path, user: User) -> Result<()> {
        hand_over::hand_over(bundle, &self.directory, &self.modules_of(user))
    }

    fn has_free(&self) -> bool {
        statvfs(&self.directory).map_or(true, |room| {
            room.blocks_available().saturating_mul(room.fragment_size()) >= self.free.load(Ordering::Relaxed)
        })
    }

    /// Returns how many bundles were removed unsent since the spool was created.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join(DROPPED)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Removes a bundle.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, stored: &StoredBundle) -> Result<()> {
        remove(&stored.path).map_err(Error::file("remove", &stored.path))?;
        for beside in [SENT, USERS] {
            let _ = fs::remove_file(self.directory.join(beside).join(&stored.id));
        }
        self.remove_unused_modules();
        Ok(())
    }

    /// Returns the names of the bundles that were not sent, oldest first. No bundle is opened.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn unsent(&self) -> Result<Vec<String>> {
        let mut names = self.names()?;
        let sent = self.sent_names();
        names.retain(|name| !sent.contains(std::ffi::OsStr::new(name)));
        names.sort_by_key(|name| entry::number(name));
        Ok(names)
    }

    /// Marks a bundle as sent. From then on it may be removed before others.
    ///
    /// # Errors
    /// When there is no bundle with this name, or the mark cannot be written.
    pub fn mark_sent(&self, id: &str) -> Result<()> {
        let is_name = entry::number(id).is_some() && !id.contains('/');
        if !is_name || !self.directory.join(id).is_dir() {
            return Err(Error::NoSuchCrash {
                id: id.to_owned(),
                spool: self.directory.clone(),
            });
        }
        let sent = self.directory.join(SENT);
        let mark = sent.join(id);
        fs::create_dir_all(&sent)
            .and_then(|()| fs::File::create(&mark).map(drop))
            .map_err(Error::file("write", &mark))
    }

    /// Returns the names of sent bundles.
    fn sent_names(&self) -> HashSet<std::ffi::OsString> {
        let marks = fs::read_dir(self.directory.join(SENT));
        let marks = marks.into_iter().flatten().flatten();
        marks.map(|entry| entry.file_name()).collect()
    }
}

/// Creates a spool directory if it is missing, for its owner only.
pub(crate) fn make_directory(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(Error::file("create", directory))
}

/// Removes a bundle atomically, so that no reader sees a part of it.
fn remove(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let aside = tempfile::Builder::new()
        .prefix(".backtrail-")
        .tempdir_in(parent)?;
    fs::rename(path, aside.path().join("gone"))?;
    aside.close()
}

/// Removes unfinished bundles of killed writers. A worker may outlive its killed daemon by
/// milliseconds, and has its bundle locked until it ends.
fn remove_unfinished(directory: &Path) -> Result<usize> {
    const PAUSE: Duration = Duration::from_millis(10);
    const MOST: u32 = 100;
    let mut removed = Writer::remove_abandoned(directory)?;
    for _ in 0..MOST {
        if Writer::count_unfinished(directory)? == 0 {
            break;
        }
        std::thread::sleep(PAUSE);
        removed += Writer::remove_abandoned(directory)?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
