//! The crashing thread as the kernel sees it when it opens a core file: directories, ids,
//! capabilities.
//!
//! The crashing user chooses the name of a core file and the directories on its path. The handler
//! runs as root in the initial namespaces. It therefore drops these rights before it opens such a
//! name.

use crate::pattern::Specifiers;
use caps::{CapSet, Capability, CapsHashSet};
use nix::fcntl::{OFlag, openat};
use nix::sys::prctl;
use nix::sys::stat::{FileStat, Mode, fstat, stat};
use nix::unistd::{Gid, Uid, chroot, fchdir, setgroups, setresgid, setresuid};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// The capabilities that affect opening and creating files.
const FOR_FILES: [Capability; 3] = [
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
];
/// Maximum size of a thread's `status` file: 65 536 groups of eleven bytes fit.
const MAX_STATUS: u64 = 1 << 20;

/// The crashing thread's directory in `/proc`. The thread's number may be reused, but this
/// descriptor stays with the thread.
#[derive(Debug)]
pub(super) struct CrashedThread(OwnedFd);

/// The ids and capabilities that the kernel checks against file permissions.
#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

/// The directories in which the crashing thread resolves paths, after the handler has taken its
/// identity.
#[derive(Debug)]
pub(super) struct Directories {
    /// For absolute paths.
    pub(super) root: OwnedFd,
    /// For relative paths.
    pub(super) working: OwnedFd,
    /// The user that opens files.
    pub(super) user: Uid,
}

impl CrashedThread {
    /// Opens the directory of the crashed thread.
    pub(super) fn open(crash: &Specifiers) -> io::Result<Self> {
        let path = format!("/proc/{}/task/{}", crash.pid, crash.tid);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = nix::fcntl::open(path.as_str(), flags, Mode::empty())?;
        let thread = Self(directory);
        // The thread may have been killed during the dump, and another thread may have its number.
        let status = thread.status()?;
        let user = ids(&status, "Uid:").and_then(|ids| ids.first().copied());
        if field(&status, "CoreDumping:") == Some("1") && user == Some(crash.uid) {
            Ok(thread)
        } else {
            Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the crashed process has ended",
            ))
        }
    }

    fn status(&self) -> io::Result<String> {
        let file = openat(
            &self.0,
            "status",
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let mut text = Vec::new();
        File::from(file).take(MAX_STATUS).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns whether the thread is in the handler's user namespace. In another namespace, its
    /// capabilities grant nothing here.
    fn is_in_our_user_namespace(&self) -> io::Result<bool> {
        let theirs = openat(
            &self.0,
            "ns/user",
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let identity = |found: FileStat| (found.st_dev, found.st_ino);
        Ok(identity(fstat(&theirs)?) == identity(stat("/proc/self/ns/user")?))
    }

    /// Takes the thread's identity for file access: its root directory, its file system ids, and
    /// its capabilities for files. This is irreversible and drops all of root's rights. Call it in
    /// a process with one thread.
    pub(super) fn assume(self) -> io::Result<Directories> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the process's ids cannot be read");
        let credentials = Credentials::parse(&self.status()?).ok_or_else(malformed)?;
        let capabilities = if self.is_in_our_user_namespace()? {
            credentials.capabilities
        } else {
            0
        };
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = openat(&self.0, "root", directory, Mode::empty())?;
        let working = openat(&self.0, "cwd", directory, Mode::empty())?;
        drop(self);
        fchdir(&root)?;
        chroot(".")?;
        let user = Uid::from_raw(credentials.user);
        let group = Gid::from_raw(credentials.group);
        let groups: Vec<Gid> = credentials.groups.into_iter().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        prctl::set_keepcaps(true)?;
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
        keep(capabilities).map_err(io::Error::other)?;
        prctl::set_no_new_privs()?;
        // The user must not trace a process that has the core pipe open.
        prctl::set_dumpable(false)?;
        Ok(Directories { root, working, user })
    }
}

/// Drops all capabilities except those of `theirs` that affect files.
fn keep(theirs: u64) -> Result<(), caps::errors::CapsError> {
    let had = caps::read(None, CapSet::Permitted)?;
    let retained: CapsHashSet = FOR_FILES
        .into_iter()
        .filter(|capability| theirs & capability.bitmask() != 0 && had.contains(capability))
        .collect();
    let none = CapsHashSet::new();
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &none)?;
    caps::set(None, CapSet::Inheritable, &none)?;
    caps::set(None, CapSet::Permitted, &retained)?;
    caps::set(None, CapSet::Effective, &retained)
}

/// Returns the value of a line of `status` (proc_pid_status(5)).
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

fn ids(status: &str, name: &str) -> Option<Vec<u32>> {
    let words = field(status, name)?.split_ascii_whitespace();
    words.map(|word| word.parse().ok()).collect()
}

impl Credentials {
    fn parse(status: &str) -> Option<Self> {
        // The ids are real, effective, saved and file system.
        let for_files = |name| ids(status, name)?.get(3).copied();
        Some(Self {
            user: for_files("Uid:")?,
            group: for_files("Gid:")?,
            groups: ids(status, "Groups:")?,
            capabilities: u64::from_str_radix(field(status, "CapEff:")?, 16).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_the_file_system_ids() {
        let status = "Name:\tx\\nUid: 0 0 0 0\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t000000000000000a\n";
        let expected = Credentials {
            user: 4,
            group: 8,
            groups: vec![9, 10],
            capabilities: 0b1010,
        };
        assert_eq!(Credentials::parse(status), Some(expected));
        assert_eq!(
            Credentials::parse("Uid:\t1\t2\t3\nGid:\t1\t1\t1\t1\nGroups:\t\nCapEff:\t0\n"),
            None
        );
        assert_eq!(Credentials::parse(""), None);
    }

    #[test]
    fn thread_without_core_dump_is_refused() {
        let crash = Specifiers {
            pid: std::process::id(),
            tid: nix::unistd::gettid().as_raw().cast_unsigned(),
            uid: Uid::current().as_raw(),
            ..Specifiers::default()
        };
        let refused = CrashedThread::open(&crash).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    }
}
