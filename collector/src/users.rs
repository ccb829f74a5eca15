//! The users by whom all limited resources are divided.
//!
//! A user may own ranges of subordinate user ids (subuid(5)). They count as their owner, so that
//! starting processes under many ids brings no advantage.

use backtrail_process::RawTid;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The default for `SYS_UID_MAX`, the largest user id of system services (login.defs(5)).
const SYSTEM_MAX: u32 = 999;
/// Maximum number of lines that are read from a file.
const MAX_LINES: usize = 65_536;

/// A user who owns processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct User {
    /// The id in the initial user namespace.
    pub id: u32,
    /// Whether this is root or a system service, which have reserved resources.
    pub is_system: bool,
}

impl User {
    /// Root.
    pub const ROOT: Self = Self {
        id: 0,
        is_system: true,
    };

    /// The user of processes whose user is unknown. They share one limit.
    pub const UNKNOWN: Self = Self {
        id: u32::MAX,
        is_system: false,
    };
}

/// Maps user ids to the users who own them.
#[derive(Debug)]
pub struct Users {
    subordinate: PathBuf,
    passwords: PathBuf,
    system_max: u32,
    known: Mutex<CachedRanges>,
}

/// The subordinate ranges at the last read.
#[derive(Debug, Default)]
struct CachedRanges {
    modified: Option<SystemTime>,
    /// Sorted by first id.
    ranges: Vec<IdRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IdRange {
    first: u32,
    count: u32,
    owner: u32,
}

impl Default for Users {
    fn default() -> Self {
        Self::at(Path::new("/etc"))
    }
}

impl Users {
    /// Reads `subuid`, `passwd` and `login.defs` below `etc`. A missing file counts as empty.
    #[must_use]
    pub fn at(etc: &Path) -> Self {
        let definitions = std::fs::read_to_string(etc.join("login.defs")).unwrap_or_default();
        Self {
            subordinate: etc.join("subuid"),
            passwords: etc.join("passwd"),
            system_max: system_max(&definitions).unwrap_or(SYSTEM_MAX),
            known: Mutex::default(),
        }
    }

    /// Returns the largest id of system users.
    #[must_use]
    pub fn system_max(&self) -> u32 {
        self.system_max
    }

    /// Returns the user who owns `id`: the owner of the subordinate range that contains it, or else
    /// `id` itself. Reads the ranges again after their file has changed.
    #[must_use]
    pub fn owner_of(&self, id: u32) -> User {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let modified = std::fs::metadata(&self.subordinate)
            .and_then(|file| file.modified())
            .ok();
        if modified != known.modified {
            known.ranges = self.read_ranges();
            known.modified = modified;
        }
        let after = known.ranges.partition_point(|range| range.first <= id);
        let before = known.ranges.get(..after).unwrap_or_default();
        let owner = before.iter().rev().find(|range| id - range.first < range.count);
        match owner {
            // A service that lends ids (Docker's `dockremap`) does not lend its reserved resources.
            Some(range) => User {
                id: range.owner,
                is_system: false,
            },
            None => User {
                id,
                is_system: id <= self.system_max,
            },
        }
    }

    /// Returns the user who owns a thread, by its real user id, so that a set-user-ID program
    /// counts for the user who started it. [`User::UNKNOWN`] if the thread has ended.
    #[must_use]
    pub fn of_thread(&self, tid: RawTid) -> User {
        let status = std::fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
        real_user(&String::from_utf8_lossy(&status)).map_or(User::UNKNOWN, |id| self.owner_of(id))
    }

    fn read_ranges(&self) -> Vec<IdRange> {
        let text = std::fs::read_to_string(&self.subordinate).unwrap_or_default();
        let passwords = std::fs::read_to_string(&self.passwords).unwrap_or_default();
        let ranges = text.lines().take(MAX_LINES).filter_map(|line| {
            let mut fields = line.split(':');
            let owner = user_id(fields.next()?, &passwords)?;
            let first = fields.next()?.trim().parse().ok()?;
            let count = fields.next()?.trim().parse().ok()?;
            Some(IdRange { first, count, owner })
        });
        let mut ranges: Vec<IdRange> = ranges.collect();
        ranges.sort_by_key(|range| range.first);
        ranges
    }
}

/// Returns the id of a user by name or number, from the text of passwd(5).
fn user_id(name: &str, passwords: &str) -> Option<u32> {
    if let Ok(id) = name.parse() {
        return Some(id);
    }
    passwords.lines().take(MAX_LINES).find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Returns the real user id in the text of `/proc/PID/status` (proc_pid_status(5)).
fn real_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn system_max(definitions: &str) -> Option<u32> {
    definitions
        .lines()
        .find_map(|line| line.strip_prefix("SYS_UID_MAX"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(subordinate: &str) -> (tempfile::TempDir, Users) {
        let etc = tempfile::tempdir().unwrap();
        std::fs::write(etc.path().join("subuid"), subordinate).unwrap();
        let passwords =
            "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nlender:x:110:110::/:/bin/false\n";
        std::fs::write(etc.path().join("passwd"), passwords).unwrap();
        std::fs::write(
            etc.path().join("login.defs"),
            "# SYS_UID_MAX 5\nSYS_UID_MAX\t500\n",
        )
        .unwrap();
        let users = Users::at(etc.path());
        (etc, users)
    }

    #[test]
    fn subordinate_ids_count_as_their_owner() {
        let (_etc, users) = users("ann:100000:65536\n1001:200000:10\nlender:300000:10\nghost:1:1\nbroken\n");
        let owner_of = |id| (users.owner_of(id).id, users.owner_of(id).is_system);
        assert_eq!(owner_of(0), (0, true));
        assert_eq!(owner_of(500), (500, true));
        assert_eq!(owner_of(501), (501, false));
        assert_eq!(owner_of(1000), (1000, false));
        assert_eq!(owner_of(100_000), (1000, false));
        assert_eq!(owner_of(165_535), (1000, false));
        assert_eq!(owner_of(165_536), (165_536, false));
        assert_eq!(owner_of(200_009), (1001, false));
        assert_eq!(owner_of(300_000), (110, false), "no reserve is lent");
        assert_eq!(owner_of(1), (1, true), "an owner without an entry has no range");
    }

    #[test]
    fn thread_is_owned_by_its_real_user() {
        let (_etc, users) = users("");
        let own = nix::unistd::getuid().as_raw();
        assert_eq!(users.of_thread(std::process::id() as RawTid), users.owner_of(own));
        assert_eq!(real_user("Name:\tUid: 5\nUid:\t1000\t0\t0\t0\n"), Some(1000));
        assert_eq!(users.of_thread(RawTid::MAX), User::UNKNOWN);
    }

    #[test]
    fn changed_ranges_are_read_again() {
        let (etc, users) = users("");
        assert_eq!(users.owner_of(100_000).id, 100_000);
        let path = etc.path().join("subuid");
        std::fs::write(&path, "ann:100000:10\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(10);
        std::fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_eq!(users.owner_of(100_000).id, 1000);
    }
}
