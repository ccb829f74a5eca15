//! Drops the privileges that the daemon does not need after its start (capabilities(7)).
//!
//! The daemon stays root, because it holds processes of all users. Workers ([`crate::worker`]) read
//! everything that these processes could have written, and have no privileges.

use crate::error::{Error, Result};
use crate::ownership::{Owner, chown_recursively};
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, User, chown};
use std::collections::HashSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The needed capabilities, with reasons. A worker has the first three, and `CAP_SYS_CHROOT`,
/// `CAP_SETUID` and `CAP_SETGID`, until it has opened the files of its process.
pub const NEEDED: [(Capability, &str); 12] = [
    (
        Capability::CAP_SYS_PTRACE,
        "open the memory and files of processes that crash",
    ),
    (
        Capability::CAP_DAC_READ_SEARCH,
        "open binaries that only their owner may read",
    ),
    (
        Capability::CAP_CHECKPOINT_RESTORE,
        "open binaries that were deleted, by their mapping",
    ),
    (
        Capability::CAP_PERFMON,
        "open events on processors that come up later",
    ),
    (Capability::CAP_BPF, "read the crash probe's maps"),
    (Capability::CAP_SYS_NICE, "read crashes at real-time priority"),
    (Capability::CAP_IPC_LOCK, "lock the memory of that thread"),
    (Capability::CAP_SYS_CHROOT, "lock a worker into its directory"),
    (Capability::CAP_SETUID, "give a worker a unique user id"),
    (Capability::CAP_SETGID, "remove all groups from a worker"),
    (
        Capability::CAP_CHOWN,
        "give a worker its directory, and take it back",
    ),
    (Capability::CAP_KILL, "end a worker that hangs"),
];

/// The capability with which the profiler reads the names of kernel functions (syslog(2)).
pub const FOR_KERNEL_NAMES: (Capability, &str) = (
    Capability::CAP_SYSLOG,
    "read the names of kernel functions for profiles",
);

/// Work after the start that needs further capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The daemon attaches uprobes.
    pub uprobes: bool,
    /// The daemon starts the profiler.
    pub profiler: bool,
}

impl Uses {
    fn capabilities(self) -> impl Iterator<Item = Capability> {
        // Recent kernels, such as Linux 6.18, permit uprobes only with this capability. Debian's
        // kernels can require it for all events.
        let for_events = self.uprobes || self.profiler && are_events_restricted();
        let for_events = for_events.then_some(Capability::CAP_SYS_ADMIN);
        let for_names = self.profiler.then_some(FOR_KERNEL_NAMES.0);
        for_events.into_iter().chain(for_names)
    }
}

/// Returns whether `kernel.perf_event_paranoid` is above 2, which only Debian's kernels have.
fn are_events_restricted() -> bool {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    text.is_ok_and(|text| text.trim().parse::<i32>().is_ok_and(|level| level > 2))
}

/// Keeps only the needed capabilities, for all threads that start from now on. Gives the spool to
/// root if another user owns it, and lets the group of `reader` open bundles. Call this before
/// starting threads.
///
/// # Errors
/// When the user does not exist, or the kernel refuses.
pub fn drop_unneeded(reader: Option<&str>, spool: &Path, uses: Uses) -> Result<()> {
    let had = caps::read(None, CapSet::Permitted).map_err(refused)?;
    let retained: CapsHashSet = NEEDED
        .iter()
        .map(|(needed, _)| *needed)
        .chain(uses.capabilities())
        .filter(|needed| had.contains(needed))
        .collect();
    let none = HashSet::new();
    // The configured path may be a link.
    let target = spool.canonicalize().unwrap_or_else(|_| spool.to_owned());
    let changed = || Error::file("change the owner of", &target);
    let found = std::fs::metadata(&target).map_err(changed())?;
    if found.uid() != Uid::effective().as_raw() {
        // An earlier version gave the spool away. Without CAP_DAC_OVERRIDE root cannot write to
        // another user's directory.
        let owner = Owner {
            user: Uid::effective(),
            group: None,
        };
        chown_recursively(&target, owner).map_err(changed())?;
    }
    if let Some(name) = reader {
        let group = group_of(name)?;
        chown(&target, None, Some(group)).map_err(|error| changed()(error.into()))?;
        let mode = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(&target, mode).map_err(changed())?;
    }
    for capability in caps::all() {
        if !retained.contains(&capability) && had.contains(&Capability::CAP_SETPCAP) {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    caps::set(None, CapSet::Effective, &none).map_err(refused)?;
    caps::set(None, CapSet::Permitted, &retained).map_err(refused)?;
    caps::set(None, CapSet::Effective, &retained).map_err(refused)?;
    caps::set(None, CapSet::Inheritable, &none).map_err(refused)?;
    nix::sys::prctl::set_no_new_privs().map_err(Error::system("set no_new_privs"))
}

/// Returns the primary group of a user.
fn group_of(name: &str) -> Result<Gid> {
    let found = User::from_name(name).map_err(Error::system("look up the user"))?;
    let missing = || Error::Unable(format!("there is no user {name:?}; create it, or remove `user`"));
    Ok(found.ok_or_else(missing)?.gid)
}

fn refused(error: caps::errors::CapsError) -> Error {
    Error::Unable(format!("the kernel refuses to change capabilities: {error}"))
}
