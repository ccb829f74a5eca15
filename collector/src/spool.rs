//! The spool: bundles of crashes, each a directory, the oldest going when there is no room.
//!
//! A bundle has its name only once all of it is on the disk. Names begin with a number that only grows, so their
//! order is that of the crashes, whatever the wall clock did.

mod entry;
mod eviction;
mod hand_over;
mod sender;

pub use entry::StoredBundle;
pub use sender::BundleSender;

use crate::config::Size;
use crate::error::{Error, Result};
use crate::users::{User, Users};
use backtrail_bundle::{Overwrite, Writer};
use eviction::{Candidate, EvictionOrder};
use nix::sys::statvfs::statvfs;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Modules that bundles share.
const MODULES: &str = ".modules";
/// How many bundles went unsent, as text.
const DROPPED: &str = ".dropped";
/// Empty files, named as the bundles that were sent.
const SENT: &str = ".sent";
/// The users who answer for bundles, by the bundles' names.
const USERS: &str = ".users";
/// The part of the limit that is reserved for bundles of root and system services: a quarter.
const RESERVE_DIVISOR: u64 = 4;

/// A directory of bundles.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    limit: AtomicU64,
    free: AtomicU64,
    /// The number of the newest bundle that was begun.
    newest: Mutex<u64>,
    /// The bundles that were measured: what has its name changes no more.
    usage: Mutex<HashMap<String, BundleUsage>>,
    users: Users,
}

/// What counts of a bundle when there is no room.
#[derive(Clone, Copy, Debug)]
struct BundleUsage {
    /// Bytes on the disk, but for shared modules.
    size: u64,
    user: User,
}

/// The place of a bundle that a worker writes.
#[derive(Clone, Debug)]
pub struct ReservedName {
    /// The name it will have.
    pub id: String,
    /// Where it will stand.
    pub path: PathBuf,
}

/// A bundle that is being written into the spool.
#[derive(Debug)]
pub struct BundleDraft {
    /// The name it will have.
    pub id: String,
    /// Where it will stand.
    pub path: PathBuf,
    /// Writes it.
    pub writer: Writer,
}

impl Spool {
    /// Makes the directory where there is none, and removes what killed writers left.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn create(directory: &Path, limit: Size, free: Size) -> Result<Self> {
        // Cores hold what programs knew: they are for whoever runs the collector, unless the directory says otherwise.
        make_directory(directory)?;
        let removed = Writer::remove_abandoned(directory)?;
        if removed != 0 {
            tracing::warn!("{removed} unfinished bundle(s) of a collector that was killed were removed");
        }
        let spool = Self::open(directory, limit, free);
        spool.remove_unused_modules();
        spool.remove_unused_users();
        Ok(spool)
    }

    /// The spool at a directory, which need not be there.
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

    /// Other limits from now on.
    pub fn set_limits(&self, limit: Size, free: Size) {
        self.limit.store(limit.0, Ordering::Relaxed);
        self.free.store(free.0, Ordering::Relaxed);
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its bundles, the oldest first. What cannot be read is told as such in its entry.
    ///
    /// # Errors
    /// When the directory cannot be read; that it is not there means that it has none.
    pub fn entries(&self) -> Result<Vec<StoredBundle>> {
        let mut found: Vec<StoredBundle> = self.names()?.into_iter().map(|name| self.stored(&name)).collect();
        found.sort_by_key(|stored| entry::number(&stored.id));
        Ok(found)
    }

    /// The bundle that `id` names: its whole name, its number, the start of its name if only one starts so, or
    /// `latest`.
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

    /// Begins a bundle of a crash of `program` (its short name).
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

    /// Records who answers for a bundle: what the bundle itself says is the word of who wrote it.
    fn record_user(&self, id: &str, user: User) -> Result<()> {
        if user == User::UNKNOWN {
            return Ok(());
        }
        let directory = self.directory.join(USERS);
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join(id), user.id.to_string()))
            .map_err(Error::file("write to", &directory))
    }

    /// Returns who answers for a bundle, as [`Self::record_user`] recorded it.
    fn user_of(&self, id: &str) -> User {
        let text = fs::read_to_string(self.directory.join(USERS).join(id)).unwrap_or_default();
        let user = text.trim().parse();
        user.map_or(User::UNKNOWN, |user| self.users.owner_of(user))
    }

    /// Removes the records of users whose bundles are gone.
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

    /// Chooses the name of a bundle that a worker is to write.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn reserve(&self, program: &str, pid: u32) -> Result<ReservedName> {
        let id = entry::name(self.next_number()?, program, pid);
        let path = self.directory.join(&id);
        Ok(ReservedName { id, path })
    }

    /// Hands a finished bundle of a user's process over ([`Self::hand_over`]) and moves it to its place; it survives a loss of
    /// power from then on.
    ///
    /// # Errors
    /// When it cannot be handed over or moved.
    pub fn publish(&self, bundle: &Path, place: &ReservedName, user: User) -> Result<()> {
        self.hand_over(bundle, user)?;
        // Whose it is the daemon knows best: a worker wrote what the bundle says.
        let size = entry::size(bundle);
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.insert(place.id.clone(), BundleUsage { size, user });
        drop(usage);
        self.record_user(&place.id, user)?;
        fs::rename(bundle, &place.path).map_err(Error::file("create", &place.path))?;
        let directory = fs::File::open(&self.directory).and_then(|directory| directory.sync_all());
        directory.map_err(Error::file("write", &self.directory))
    }

    /// Where copies of modules are kept that bundles of a user share. Each user has a place of its own, so that what a worker
    /// wrote of one user's process gets into no bundle of another's.
    #[must_use]
    pub fn modules_of(&self, user: User) -> PathBuf {
        self.directory.join(MODULES).join(user.id.to_string())
    }

    /// Removes copies of modules that no bundle has any more.
    fn remove_unused_modules(&self) {
        for entry in fs::read_dir(self.directory.join(MODULES))
            .into_iter()
            .flatten()
            .flatten()
        {
            Writer::remove_unused_modules(&entry.path());
        }
    }

    /// How many bytes a bundle may take before less stays free on the disk than must.
    ///
    /// # Errors
    /// When there is no room, or the disk cannot be asked.
    pub fn room(&self) -> Result<u64> {
        let found = statvfs(&self.directory).map_err(Error::system("look at the spool's disk"))?;
        let free = found.blocks_available().saturating_mul(found.fragment_size());
        let kept = self.free.load(Ordering::Relaxed);
        match free.checked_sub(kept) {
            Some(room @ 1..) => Ok(room),
            _ => Err(Error::Unable("the spool's disk is full".to_owned())),
        }
    }

    /// Removes bundles until the limits hold: those that were sent first, then the oldest of the user whose bundles take
    /// most; those of system users stay while they take no more than a quarter of the limit. Returns the number of unsent
    /// ones that went. The newest stays in any case.
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
                // A bundle that is being written may have it as well by now.
                if let Some(found) = found.filter(|found| found.nlink() == 1)
                    && fs::remove_file(module).is_ok()
                {
                    total = total.saturating_sub(found.blocks() * 512);
                }
            }
        }
        if dropped != 0 {
            let path = self.directory.join(DROPPED);
            let _ = fs::write(path, (self.dropped() + dropped).to_string());
        }
        Ok(dropped)
    }

    /// Where shared modules are, by inode.
    fn shared_modules(&self) -> HashMap<u64, PathBuf> {
        let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        inside(&self.directory.join(MODULES))
            .flat_map(|user| inside(&user.path()))
            .map(|entry| (entry.ino(), entry.path()))
            .collect()
    }

    /// How much room each takes, whose it is, and whether it was sent.
    fn measure(&self, names: Vec<String>) -> Vec<Candidate> {
        let sent: HashSet<_> = fs::read_dir(self.directory.join(SENT))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
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

    /// Gives a finished bundle, which another user may have written, to the owner and group of the spool. The group can
    /// read it, and the modules that it shares with others, exactly where it can read the spool.
    ///
    /// # Errors
    /// When there is in it what no bundle has: a link, a file with another name or of another user than the bundle's, what
    /// is neither file nor directory, too many or too deep; or the kernel refuses. A part of it may have been given then.
    pub fn hand_over(&self, bundle: &Path, user: User) -> Result<()> {
        hand_over::hand_over(bundle, &self.directory, &self.modules_of(user))
    }

    fn has_free(&self) -> bool {
        statvfs(&self.directory).map_or(true, |room| {
            room.blocks_available().saturating_mul(room.fragment_size()) >= self.free.load(Ordering::Relaxed)
        })
    }

    /// How many bundles went unsent since the spool was made.
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

    /// Gives the bundles that were not sent yet to a sender, the oldest first; how many it took.
    ///
    /// # Errors
    /// The sender's; what it took before counts as sent.
    pub fn send(&self, sender: &mut dyn BundleSender) -> Result<usize> {
        let mut taken = 0;
        for stored in self.entries()?.into_iter().filter(|stored| !stored.sent) {
            sender.send(&stored)?;
            let sent = self.directory.join(SENT);
            let mark = sent.join(&stored.id);
            fs::create_dir_all(&sent)
                .and_then(|()| fs::File::create(&mark).map(drop))
                .map_err(Error::file("write", &mark))?;
            taken += 1;
        }
        Ok(taken)
    }
}

/// Makes a spool's directory where there is none, for its owner alone.
pub(crate) fn make_directory(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(Error::file("create", directory))
}

/// Removes a bundle so that nobody ever sees half of one.
fn remove(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let aside = tempfile::Builder::new()
        .prefix(".backtrail-")
        .tempdir_in(parent)?;
    fs::rename(path, aside.path().join("gone"))?;
    aside.close()
}

#[cfg(test)]
mod tests;
