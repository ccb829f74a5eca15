//! What the daemon may do once it is set up: what it needs, and no more (capabilities(7)).

use crate::error::{Error, Result};
use crate::ownership::{Owner, give_all};
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, User, setgroups, setresgid, setresuid};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What each is for.
pub const NEEDED: [(Capability, &str); 7] = [
    (
        Capability::CAP_SYS_PTRACE,
        "read the memory and files of processes that crash",
    ),
    (
        Capability::CAP_DAC_READ_SEARCH,
        "read binaries that only their owner may read",
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
    (Capability::CAP_IPC_LOCK, "keep what that thread uses in memory"),
];

/// Keeps what is needed, for all threads that are started from now on, and becomes `user` where one is named. To whom it then
/// is, `spool` is given with all that is in it. The runtime directory stays root's, who believes what is in it. Call it before
/// there are threads.
///
/// # Errors
/// When there is no such user, or the kernel refuses.
pub fn drop_to(user: Option<&str>, spool: &Path) -> Result<()> {
    let had = caps::read(None, CapSet::Permitted).map_err(refused)?;
    let kept: CapsHashSet = NEEDED
        .iter()
        .map(|(needed, _)| *needed)
        .filter(|needed| had.contains(needed))
        .collect();
    let none = HashSet::new();
    let switched = match user {
        Some(name) => {
            let found = User::from_name(name).map_err(Error::system("look up the user"))?;
            let found = found.ok_or_else(|| {
                Error::Unable(format!(
                    "there is no user {name:?}; create it, or leave `user` out"
                ))
            })?;
            Some((found.uid, found.gid))
        }
        None => None,
    };
    // Root, too: without CAP_DAC_OVERRIDE it can no more write to what it was another user's at the last start than that one
    // to root's.
    // Its group stays then, for it may be that of those who open crashes.
    let owner = Owner {
        user: switched.map_or_else(Uid::effective, |(user, _)| user),
        group: switched.map(|(_, group)| group),
    };
    let is_another_s =
        |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.uid() != owner.user.as_raw());
    // The configuration may name a link to it.
    let target = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if is_another_s(spool) {
        give_all(&target(spool), owner).map_err(Error::file("give away", spool))?;
    }
    // Before the user changes, which takes the right to do so.
    for capability in caps::all() {
        if !kept.contains(&capability) && had.contains(&Capability::CAP_SETPCAP) {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    if let Some((uid, gid)) = switched {
        become_user(uid, gid)?;
    }
    caps::set(None, CapSet::Effective, &none).map_err(refused)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(refused)?;
    caps::set(None, CapSet::Effective, &kept).map_err(refused)?;
    caps::set(None, CapSet::Inheritable, &none).map_err(refused)?;
    nix::sys::prctl::set_no_new_privs().map_err(Error::system("give up new privileges"))
}

fn become_user(uid: Uid, gid: Gid) -> Result<()> {
    let refused = || Error::system("become the user that `user` names");
    nix::sys::prctl::set_keepcaps(true).map_err(refused())?;
    setgroups(&[gid]).map_err(refused())?;
    setresgid(gid, gid, gid).map_err(refused())?;
    setresuid(uid, uid, uid).map_err(refused())
}

fn refused(error: caps::errors::CapsError) -> Error {
    Error::Unable(format!("the kernel refuses to change capabilities: {error}"))
}
