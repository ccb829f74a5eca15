//! Opens files whose file system has a server (FUSE, NFS) and may not answer. A separate process
//! does this, and is abandoned after a moment.
//!
//! That process takes the identity of the process's user, without capabilities, and keeps only the
//! files that it opens. It also keeps the worker's connection to the daemon. While a file system
//! blocks it, the daemon sees the open connection and counts it against the user (`supervise.rs`).

use crate::error::{Error, Result};
use crate::wire::Connection;
use backtrail_process::beneath;
use caps::CapSet;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, fork, setgroups, setresgid, setresuid};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long opening all files of a process may take.
const LIMIT: Duration = Duration::from_millis(300);
/// Descriptor of the worker's connection to the daemon.
const DAEMON: RawFd = 0;

/// The user and group whose permissions are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) user: u32,
    pub(super) group: u32,
}

/// Opens the file of each place, if it is a regular file. Returns the results in order. Call it
/// while this process has one thread.
pub(super) fn open(handles: &[OwnedFd], identity: Identity) -> Vec<std::result::Result<File, String>> {
    let silent = || Err("its file system does not answer".to_owned());
    let mut files: Vec<_> = handles.iter().map(|_| silent()).collect();
    if handles.is_empty() {
        return files;
    }
    let Ok((ours, theirs)) = Connection::pair() else {
        return files;
    };
    // SAFETY: this process has one thread, so the child may use all functions.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            let is_reduced = reduce(handles, &theirs, identity).is_ok();
            for (index, handle) in handles.iter().enumerate().filter(|_| is_reduced) {
                let (file, why) = match beneath::reopen(handle) {
                    Ok(file) => (Some(file), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                if theirs
                    .send(&(index, why), file.as_ref().map(AsFd::as_fd))
                    .is_err()
                {
                    break;
                }
            }
            // SAFETY: ends this process at once, without running the parent's exit code.
            unsafe { libc::_exit(0) }
        }
        Ok(ForkResult::Parent { child }) => {
            drop(theirs);
            let deadline = Instant::now() + LIMIT;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() || ours.set_timeout(left.max(Duration::from_millis(1))).is_err() {
                    break;
                }
                let Ok(((index, why), file)) = ours.receive::<(usize, Option<String>)>() else {
                    break;
                };
                if let Some(result) = files.get_mut(index) {
                    *result = file.map(File::from).ok_or(why.unwrap_or_default());
                }
            }
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
        }
        Err(_) => {}
    }
    files
}

/// Drops everything except the wanted files and the permissions of `identity`.
fn reduce(handles: &[OwnedFd], connection: &Connection, identity: Identity) -> Result<()> {
    let mut wanted: Vec<RawFd> = handles.iter().map(AsRawFd::as_raw_fd).collect();
    wanted.extend([DAEMON, connection.as_fd().as_raw_fd()]);
    close_all_but(wanted);
    nix::sys::prctl::set_dumpable(false).map_err(Error::system("refuse debuggers"))?;
    nix::sys::prctl::set_no_new_privs().map_err(Error::system("refuse privileges"))?;
    setgroups(&[]).map_err(Error::system("leave all groups"))?;
    let (user, group) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    setresgid(group, group, group).map_err(Error::system("take a group"))?;
    setresuid(user, user, user).map_err(Error::system("take a user"))?;
    // Changing from root to another user clears them, but from root to root does not.
    for set in [
        CapSet::Ambient,
        CapSet::Effective,
        CapSet::Inheritable,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(|error| Error::Unable(error.to_string()))?;
    }
    Ok(())
}

/// Closes all descriptors except some.
fn close_all_but(mut wanted: Vec<RawFd>) {
    wanted.sort_unstable();
    let mut next: libc::c_uint = 0;
    for fd in wanted
        .into_iter()
        .filter_map(|fd| libc::c_uint::try_from(fd).ok())
    {
        if next < fd {
            close_range(next, fd - 1);
        }
        next = fd + 1;
    }
    close_range(next, libc::c_uint::MAX);
}

fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: the owners of the closed descriptors are in memory that this child never uses again,
    // because it ends with `_exit`.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn handle(path: &Path) -> OwnedFd {
        beneath::open_path(File::open("/").unwrap().as_fd(), path, 0).unwrap()
    }

    fn own() -> Identity {
        Identity {
            user: Uid::effective().as_raw(),
            group: Gid::effective().as_raw(),
        }
    }

    #[test]
    fn files_opened_in_another_process_are_received() {
        let program = std::env::current_exe().unwrap();
        let handles = [handle(&program), handle(Path::new("/dev/null"))];
        let files = open(&handles, own());
        assert!(files[0].as_ref().unwrap().metadata().unwrap().is_file());
        let why = files[1].as_ref().unwrap_err();
        assert!(why.contains("not a regular file"), "{why}");
    }

    #[test]
    fn only_files_readable_by_the_user_are_opened() {
        if !Uid::effective().is_root() {
            eprintln!("left out: only root can become another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut handles = Vec::new();
        for (name, mode) in [("for-all", 0o644), ("for-root", 0o600)] {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            handles.push(handle(&path));
        }
        let stranger = Identity {
            user: 65534,
            group: 65534,
        };
        let files = open(&handles, stranger);
        assert!(files[0].is_ok());
        assert!(
            files[1].as_ref().unwrap_err().contains("Permission denied"),
            "{files:?}"
        );
        // Root without capabilities only has the permissions of an owner.
        let foreign = folder.path().join("foreign");
        std::fs::write(&foreign, "x").unwrap();
        std::fs::set_permissions(&foreign, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        nix::unistd::chown(&foreign, Some(Uid::from_raw(65534)), None).unwrap();
        let files = open(&[handle(&foreign)], own());
        assert!(
            files[0].as_ref().unwrap_err().contains("Permission denied"),
            "{files:?}"
        );
    }
}
