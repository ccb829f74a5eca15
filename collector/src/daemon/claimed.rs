//! The processes that recorders claim. The daemon does not save them while their recorder runs.
//!
//! The daemon ignores crashes of claimed processes, so no user may claim a process of another user.
//! A recorder may claim only processes that it traces and that run as its own user. Recorders of
//! root may claim any process. A process is identified by a pidfd (pidfd_open(2)), because its
//! number can be reused.

use crate::wire::{Connection, Peer};
use backtrail_process::{RawTid, service, status};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of processes that the recorders of one user claim. Root has no limit.
const MAX_PER_USER: usize = 256;
/// Maximum number of processes that all recorders claim, except those of root.
const MAX_TOTAL: usize = 4096;

/// The claimed processes, by process id.
#[derive(Debug, Default)]
pub(super) struct ClaimedProcesses(Mutex<HashMap<u32, Claim>>);

#[derive(Debug)]
struct Claim {
    /// The recorder that claimed the process.
    peer: Peer,
    /// The program of the process at the last check.
    program: Option<String>,
    /// The systemd service of the process at the claim.
    service: Option<String>,
    /// Open as long as the recorder runs.
    recorder: Arc<Connection>,
    /// Readable after the process has ended.
    ended: OwnedFd,
}

/// The reason for refusing a request.
pub(super) type Refusal = &'static str;

impl ClaimedProcesses {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a running recorder claims this running process. The daemon calls this when
    /// the process crashes. Since the claim, the recorder may have detached, or the process may
    /// have changed its user by executing a set-user-ID program. In both cases the claim ends, and
    /// the daemon saves the crash.
    pub(super) fn is_claimed(&self, pid: u32) -> bool {
        let peer = match self.lock().get(&pid) {
            Some(process) if process.recorder.is_open() && is_alive(&process.ended) => process.peer,
            _ => return false,
        };
        let (check_ownership, program) = (check_ownership(pid, peer).is_ok(), status::program(pid as RawTid));
        let mut claimed = self.lock();
        match claimed.get_mut(&pid) {
            Some(process) if check_ownership => process.program = program.or(process.program.take()),
            _ => drop(claimed.remove(&pid)),
        }
        check_ownership
    }

    /// Returns whether a running recorder claims the process, even if the process has ended. The
    /// recorder may still be writing its bundle. `users` are the real and effective user at the
    /// crash, as the probe reports them.
    pub(super) fn has_live_recorder(&self, pid: u32, users: [Option<u32>; 2]) -> bool {
        let claimed = self.lock();
        let Some(process) = claimed.get(&pid).filter(|process| process.recorder.is_open()) else {
            return false;
        };
        let user = process.peer.user;
        user == 0 || users.into_iter().flatten().all(|seen| seen == user)
    }

    /// Returns the program and the service of a claimed process, as the kernel reports them.
    pub(super) fn program(&self, pid: u32) -> (Option<String>, Option<String>) {
        let claimed = self.lock();
        let process = claimed.get(&pid);
        process.map_or((None, None), |process| {
            (process.program.clone(), process.service.clone())
        })
    }

    /// Records that `peer`, at the other end of `recorder`, claims a process.
    pub(super) fn claim(&self, pid: u32, peer: Peer, recorder: Arc<Connection>) -> Result<(), Refusal> {
        let ended = admit(pid, peer)?;
        // Reading the program takes time, so this happens without the lock.
        let program = status::program(pid as RawTid);
        let service = service::of_process(pid as RawTid);
        let mut claimed = self.lock();
        claimed.retain(|_, process| process.recorder.is_open());
        if peer.user != 0 {
            let count =
                |of: &dyn Fn(u32) -> bool| claimed.values().filter(|process| of(process.peer.user)).count();
            if count(&|user| user == peer.user) >= MAX_PER_USER || count(&|user| user != 0) >= MAX_TOTAL {
                return Err("too many processes are claimed already");
            }
        }
        let process = Claim {
            peer,
            program,
            service,
            recorder,
            ended,
        };
        claimed.insert(pid, process);
        Ok(())
    }

    /// Returns whether a recorder of the same user as `peer` claims the process, even if the
    /// process has ended.
    pub(super) fn belongs_to(&self, pid: u32, peer: Peer) -> bool {
        let claimed = self.lock();
        let process = claimed.get(&pid);
        peer.user == 0
            || process.is_some_and(|process| process.peer.user == peer.user && process.recorder.is_open())
    }

    /// Returns how many processes are claimed.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }
}

/// Returns a pidfd of the process, if `peer` may claim it.
fn admit(pid: u32, peer: Peer) -> Result<OwnedFd, Refusal> {
    let ended = open(pid).ok_or(NO_PROCESS)?;
    check_ownership(pid, peer)?;
    // The status was that of this process only if the process still runs.
    if is_alive(&ended) {
        Ok(ended)
    } else {
        Err(NO_PROCESS)
    }
}

/// Checks that all user ids of a process are those of `peer`, and that `peer` traces it.
fn check_ownership(pid: u32, peer: Peer) -> Result<(), Refusal> {
    /// Maximum number of threads to check after the first one has ended.
    const THREADS: usize = 64;
    if peer.user == 0 {
        return Ok(());
    }
    let status = |tid: u32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    let first = status(pid).map_err(|_| NO_PROCESS)?;
    if users(&first) != Some([peer.user; 4]) {
        return Err("the process belongs to another user");
    }
    let is_peer = |status: &str| {
        tracer(status).is_some_and(|tracer| Path::new(&format!("/proc/{}/task/{tracer}", peer.pid)).exists())
    };
    let others = || status::threads(pid as RawTid).into_iter().take(THREADS);
    if is_peer(&first) || others().any(|tid| status(tid as u32).is_ok_and(|status| is_peer(&status))) {
        return Ok(());
    }
    Err("the recorder does not trace the process")
}

const NO_PROCESS: Refusal = "there is no such process";

/// Returns the real, effective, saved and file system user id (`Uid` of proc_pid_status(5)).
fn users(status: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let users: Vec<u32> = line.split_whitespace().flat_map(str::parse).collect();
    users.try_into().ok()
}

/// Returns the thread that traces the process (`TracerPid`).
fn tracer(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|tracer| *tracer != 0)
}

fn open(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok()?;
    // SAFETY: the call takes two numbers, returns a descriptor or an error, and writes no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn is_alive(ended: &OwnedFd) -> bool {
    let mut look = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut look, PollTimeout::ZERO), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Listener;
    use nix::sys::ptrace;
    use nix::sys::wait::waitpid;
    use nix::unistd::Pid;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Returns both ends of a connection. The first is the recorder's.
    fn connection(folder: &Path) -> (Connection, Arc<Connection>) {
        let path = folder.join("socket");
        let listener = Listener::bind_for_all(&path).unwrap();
        let recorder = Connection::open(&path).unwrap();
        (recorder, Arc::new(listener.accept().unwrap()))
    }

    #[test]
    fn only_own_traced_processes_can_be_claimed() {
        let folder = tempfile::tempdir().unwrap();
        let claimed = ClaimedProcesses::default();
        let (_recorder, connection) = connection(folder.path());
        let other = Peer {
            pid: std::process::id() as i32,
            user: 54_321,
        };
        let root = Peer { user: 0, ..other };
        let child = sleeper();
        let pid = child.id();
        let error = claimed.claim(pid, other, Arc::clone(&connection)).unwrap_err();
        assert!(error.contains("another user"), "{error}");
        assert!(!claimed.is_claimed(pid) && !claimed.belongs_to(pid, other));
        let own = Peer {
            user: nix::unistd::geteuid().as_raw(),
            ..other
        };
        if own.user != 0 {
            let error = claimed.claim(pid, own, Arc::clone(&connection)).unwrap_err();
            assert!(error.contains("does not trace"), "{error}");
        }
        let traced = Pid::from_raw(pid as i32);
        ptrace::attach(traced).unwrap();
        waitpid(traced, None).unwrap();
        claimed.claim(pid, own, Arc::clone(&connection)).unwrap();
        assert!(claimed.is_claimed(pid) && claimed.belongs_to(pid, own) && !claimed.belongs_to(pid, other));
        ptrace::detach(traced, None).unwrap();
        claimed.claim(pid, root, connection).unwrap();
        end(child);
        assert!(
            !claimed.is_claimed(pid),
            "another process may have its number now"
        );
        assert!(
            claimed.has_live_recorder(pid, [Some(0); 2]),
            "its recorder may still save it"
        );
        let (_recorder, connection) = super::tests::connection(folder.path());
        assert!(claimed.claim(pid, root, connection).is_err());
    }

    #[test]
    fn claims_end_with_the_recorder() {
        let folder = tempfile::tempdir().unwrap();
        let claimed = ClaimedProcesses::default();
        let (recorder, connection) = connection(folder.path());
        let root = Peer { pid: 1, user: 0 };
        let child = sleeper();
        claimed.claim(child.id(), root, connection).unwrap();
        assert!(claimed.is_claimed(child.id()));
        drop(recorder);
        assert!(!claimed.is_claimed(child.id()));
        end(child);
    }

    #[test]
    fn status_fields_are_parsed() {
        let status = "Name:\tx\nTracerPid:\t0\nUid:\t1\t2\t3\t4\nGid:\t0\t0\t0\t0\n";
        assert_eq!(users(status), Some([1, 2, 3, 4]));
        assert_eq!(tracer(status), None);
        assert_eq!(tracer("TracerPid:\t77\n"), Some(77));
        assert_eq!(users("Uid:\t1\n"), None);
    }
}
