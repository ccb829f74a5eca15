//! The sandbox of a worker: resource limits, then irreversible loss of privileges.
//!
//! Afterwards the worker has a user id that nothing else on the machine uses, no group and no
//! capability. Its root directory is empty, and it can make only the system calls of
//! [`SYSTEM_CALLS`]. It keeps the descriptors that it opened before.

use crate::error::{Error, Result};
use caps::CapSet;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, chroot, fchdir, setgroups, setresgid, setresuid};
use std::os::fd::BorrowedFd;

/// The first user id of workers. systemd's documentation of user ids ("Users, Groups, UIDs and GIDs
/// on systemd systems") lists this range, up to 2147483647, as unused.
pub const FIRST_IDENTITY: u32 = 0x7000_0000;
/// The number of identities, which are used in turn.
pub const IDENTITIES: u32 = 4096;

/// Bytes of address space: enough for a core's head, the list of mappings, and two thread stacks.
const ADDRESS_SPACE: u64 = 384 << 20;
/// Maximum number of open files: the binaries of the process, and a few others.
pub(super) const OPEN_FILES: u64 = 2048;
/// Maximum number of threads of the worker's user.
const THREADS: u64 = 16;

/// The system calls that a worker may make, with their purpose. All others fail with EPERM.
pub const SYSTEM_CALLS: &[(i64, &str)] = &[
    (libc::SYS_read, "the core, the process's memory and binaries"),
    (libc::SYS_pread64, "the process's memory and binaries"),
    (libc::SYS_readv, "the standard library"),
    (libc::SYS_lseek, "files with holes"),
    (libc::SYS_write, "the bundle"),
    (libc::SYS_pwrite64, "the bundle"),
    (libc::SYS_writev, "the standard library"),
    (libc::SYS_ftruncate, "the bundle"),
    (libc::SYS_fsync, "the bundle"),
    (libc::SYS_fdatasync, "the bundle"),
    (libc::SYS_copy_file_range, "the standard library's copies"),
    (libc::SYS_sendfile, "the standard library's copies"),
    (libc::SYS_splice, "the standard library's copies"),
    (
        libc::SYS_openat,
        "files of the bundle: the draft directory is the root",
    ),
    (libc::SYS_mkdir, "directories of the bundle"),
    (libc::SYS_mkdirat, "directories of the bundle"),
    (libc::SYS_rename, "the finished bundle"),
    (libc::SYS_renameat, "the finished bundle"),
    (libc::SYS_renameat2, "the finished bundle"),
    (libc::SYS_link, "shared modules"),
    (libc::SYS_linkat, "shared modules"),
    (libc::SYS_unlink, "abandoned files"),
    (libc::SYS_unlinkat, "abandoned files"),
    (libc::SYS_rmdir, "abandoned files"),
    (libc::SYS_chmod, "the bundle's permissions"),
    (libc::SYS_fchmod, "the bundle's permissions"),
    (libc::SYS_fchmodat, "the bundle's permissions"),
    (libc::SYS_getcwd, "temporary names"),
    (libc::SYS_flock, "the unfinished bundle"),
    (libc::SYS_fcntl, "descriptors"),
    (libc::SYS_dup, "descriptors"),
    (libc::SYS_close, "descriptors"),
    (libc::SYS_fstat, "sizes"),
    (libc::SYS_stat, "sizes"),
    (libc::SYS_lstat, "sizes"),
    (libc::SYS_newfstatat, "sizes"),
    (libc::SYS_statx, "sizes"),
    (libc::SYS_readlink, "the standard library's absolute paths"),
    (libc::SYS_readlinkat, "the standard library's absolute paths"),
    (libc::SYS_getdents64, "the bundle is read back"),
    (libc::SYS_poll, "the core's pipe"),
    (libc::SYS_ppoll, "the core's pipe"),
    (libc::SYS_sendmsg, "reports to the daemon"),
    (libc::SYS_sendto, "reports to the daemon"),
    (libc::SYS_mmap, "memory, not executable; the bundle is read back"),
    (libc::SYS_mprotect, "stacks of threads, not executable"),
    (libc::SYS_munmap, "memory"),
    (libc::SYS_mremap, "memory"),
    (libc::SYS_madvise, "memory"),
    (libc::SYS_brk, "memory"),
    (
        libc::SYS_clone,
        "a thread that reads a file whose file system may not answer",
    ),
    (libc::SYS_futex, "threads"),
    (libc::SYS_rseq, "threads"),
    (libc::SYS_set_robust_list, "threads"),
    (libc::SYS_sigaltstack, "threads"),
    (libc::SYS_sched_getaffinity, "threads"),
    (libc::SYS_sched_yield, "threads"),
    (libc::SYS_gettid, "threads"),
    (libc::SYS_getpid, "threads"),
    (libc::SYS_prctl, "a thread's name, and nothing else"),
    (libc::SYS_rt_sigaction, "signals"),
    (libc::SYS_rt_sigprocmask, "signals"),
    (libc::SYS_rt_sigreturn, "signals"),
    (libc::SYS_tgkill, "abort()"),
    (libc::SYS_clock_gettime, "the deadline"),
    (libc::SYS_clock_nanosleep, "the deadline"),
    (libc::SYS_nanosleep, "the deadline"),
    (libc::SYS_getrandom, "temporary names and hash tables"),
    (libc::SYS_exit, "the end"),
    (libc::SYS_exit_group, "the end"),
];

/// Additional system calls for a worker that saves a running process, which it has stopped before.
const OF_SNAPSHOTS: &[(i64, &str)] = &[
    (libc::SYS_ptrace, "registers of the process that it traces"),
    (libc::SYS_wait4, "the process that it traces"),
];

/// Sets the resource limits of this process: memory, descriptors, and no core of its own.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn limit() -> Result<()> {
    let set = |resource, limit| setrlimit(resource, limit, limit).map_err(Error::system("limit the worker"));
    set(Resource::RLIMIT_AS, ADDRESS_SPACE)?;
    // A limit of 1 also keeps the kernel from starting a core handler (core(5)).
    set(Resource::RLIMIT_CORE, 1)?;
    let (_, hard) =
        nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::system("read limits"))?;
    set(Resource::RLIMIT_NOFILE, OPEN_FILES.min(hard))?;
    // When memory runs out, the kernel kills the worker before the daemon.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    nix::sys::prctl::set_dumpable(false).map_err(Error::system("protect the worker"))
}

/// Drops all privileges irreversibly. The process becomes `identity`, with `root` as its root
/// directory, and can only make the system calls of [`SYSTEM_CALLS`]. With `traces`, it has stopped
/// a process and will read its registers.
///
/// Call it while the process has one thread.
///
/// # Errors
/// When any step fails. The caller must then end.
pub(super) fn give_up(identity: u32, root: BorrowedFd<'_>, traces: bool) -> Result<()> {
    let refused = || Error::system("drop the worker's privileges");
    fchdir(root).map_err(refused())?;
    chroot(".").map_err(refused())?;
    let (user, group) = (Uid::from_raw(identity), Gid::from_raw(identity));
    setgroups(&[]).map_err(refused())?;
    setresgid(group, group, group).map_err(refused())?;
    setresuid(user, user, user).map_err(refused())?;
    let denied = |error: caps::errors::CapsError| {
        Error::Unable(format!("the worker's capabilities could not be dropped: {error}"))
    };
    for set in [
        CapSet::Ambient,
        CapSet::Effective,
        CapSet::Inheritable,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(denied)?;
    }
    nix::sys::prctl::set_no_new_privs().map_err(refused())?;
    // A change of the user resets this. (PR_SET_PDEATHSIG would follow the thread that started the
    // worker.)
    nix::sys::prctl::set_dumpable(false).map_err(refused())?;
    setrlimit(Resource::RLIMIT_NPROC, THREADS, THREADS).map_err(refused())?;
    let still = caps::read(None, CapSet::Permitted).map_err(denied)?;
    if !still.is_empty() || Uid::current() != user || setresuid(Uid::from_raw(0), user, user).is_ok() {
        return Err(Error::Unable("the worker kept privileges".to_owned()));
    }
    let of_snapshots = OF_SNAPSHOTS.iter().filter(|_| traces);
    let calls = SYSTEM_CALLS.iter().chain(of_snapshots).map(|(call, _)| *call);
    backtrail_sandbox::limit_system_calls(calls).map_err(|error| Error::Unable(format!("worker: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::os::fd::AsFd;
    use std::process::Command;

    const INSIDE: &str = "BACKTRAIL_TEST_CONFINED";

    /// Runs in a separate process, which [`worker_has_no_privileges_left`] starts.
    #[test]
    #[ignore = "drops the privileges of its process"]
    fn confined() {
        let Some(folder) = std::env::var_os(INSIDE) else {
            return;
        };
        let status = std::fs::File::open("/proc/thread-self/status").unwrap();
        let root = std::fs::File::open(folder).unwrap();
        limit().unwrap();
        give_up(FIRST_IDENTITY, root.as_fd(), false).unwrap();
        let denied = |what: &str, result: i64| {
            let error = std::io::Error::last_os_error();
            assert!(result < 0, "{what} succeeded");
            eprintln!("{what}: {error}");
        };
        // SAFETY: none of these calls gets memory that the kernel could write to.
        unsafe {
            denied(
                "read a file of the host",
                libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY).into(),
            );
            denied(
                "leave the root",
                libc::open(c"/../etc/passwd".as_ptr(), libc::O_RDONLY).into(),
            );
            denied("another root", libc::chroot(c".".as_ptr()).into());
            denied("become root", libc::syscall(libc::SYS_setresuid, 0, 0, 0));
            denied(
                "network",
                libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into(),
            );
            denied(
                "local sockets",
                libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into(),
            );
            denied(
                "execute",
                libc::execve(c"/bin/true".as_ptr(), std::ptr::null(), std::ptr::null()).into(),
            );
            denied("fork", libc::fork().into());
            denied("trace", libc::ptrace(libc::PTRACE_ATTACH, 1, 0, 0));
            denied("kill", libc::kill(1, 0).into());
            denied(
                "mount",
                libc::mount(
                    c"x".as_ptr(),
                    c"/".as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    std::ptr::null(),
                )
                .into(),
            );
            denied("namespaces", libc::unshare(libc::CLONE_NEWUSER).into());
            denied("eBPF", libc::syscall(libc::SYS_bpf, 0, 0, 0));
            let size = 4096;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let code = libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_EXEC,
                flags,
                -1,
                0,
            );
            denied("executable memory", if code == libc::MAP_FAILED { -1 } else { 0 });
        }
        std::fs::write("/allowed", "x").unwrap();
        let thread = std::thread::spawn(|| std::fs::read_to_string("/allowed").unwrap());
        assert_eq!(thread.join().unwrap(), "x", "a thread that reads files");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut &status, &mut text).unwrap();
        let line = |key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let id = FIRST_IDENTITY.to_string();
        let ids = [id.as_str(); 4].join(" ");
        assert_eq!(
            (line("Uid:"), line("Gid:"), line("Groups:")),
            (ids.clone(), ids, String::new())
        );
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(set), "0000000000000000", "{set}");
        }
        assert_eq!(
            (line("NoNewPrivs:").as_str(), line("Seccomp:").as_str()),
            ("1", "2")
        );
        eprintln!("confined");
    }

    #[test]
    fn worker_has_no_privileges_left() {
        if !Uid::effective().is_root() {
            return eprintln!("left out: only root can give privileges up");
        }
        let folder = tempfile::tempdir().unwrap();
        let handle = std::fs::File::open(folder.path()).unwrap();
        nix::unistd::fchown(&handle, Some(Uid::from_raw(FIRST_IDENTITY)), None).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "worker::confine::tests::confined",
            ])
            .args(["--test-threads", "1"])
            .env(INSIDE, folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("\nconfined\n"),
            "{said}{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }

    #[test]
    fn documents_list_capabilities_and_system_calls() {
        let page = include_str!("../../../docs/worker.md");
        let mut table = String::new();
        for (capability, why) in crate::privilege::NEEDED {
            let _ = writeln!(table, "| `{capability}` | {why} |");
        }
        assert!(page.contains(&table), "docs/worker.md lacks:\n{table}");
        let listed = |page: &str| {
            let (_, after) = page.split_once("<!-- system calls -->").unwrap();
            let (list, _) = after.split_once("<!-- end -->").unwrap();
            let names = list.split('`').skip(1).step_by(2);
            names
                .map(str::to_owned)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let names = listed(page);
        assert_eq!(names.len(), SYSTEM_CALLS.len(), "docs/worker.md lists {names:?}");
        let kinds: std::collections::BTreeSet<&str> = SYSTEM_CALLS.iter().map(|(_, why)| *why).collect();
        for why in kinds {
            assert!(page.contains(why), "docs/worker.md does not say: {why}");
        }
    }
}
