//! The sandbox of the child process: resource limits, files, and a list of permitted system calls.
//!
//! The child keeps the user of the hub. It has no network, starts no program, and traces and
//! signals no other process. Where the kernel has Landlock, it opens only the files of its task.

use clap::Args;
use nix::sys::resource::{Resource, setrlimit};
use std::path::Path;

/// The resources of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct ChildLimits {
    /// Address space in MiB.
    #[arg(long, default_value_t = 4096)]
    pub memory_mib: u64,
    /// Processor time in seconds.
    #[arg(long, default_value_t = 120)]
    pub cpu_seconds: u64,
    /// The largest file that it writes, in MiB.
    #[arg(long, default_value_t = 8192)]
    pub file_mib: u64,
}

/// The most open files.
const OPEN_FILES: u64 = 4096;

/// The system calls that a child may make. All others fail with EPERM.
const SYSTEM_CALLS: &[i64] = &[
    // The bundle, debug files, unpacked files and the result.
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_copy_file_range,
    libc::SYS_fadvise64,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_close,
    libc::SYS_stat,
    libc::SYS_fstat,
    libc::SYS_lstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Threads.
    libc::SYS_clone,
    libc::SYS_prctl,
    libc::SYS_futex,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_tgkill,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The files of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskFiles<'a> {
    /// Files and directories to read.
    pub readable: Vec<&'a Path>,
    /// New files, whose directories the task may write to.
    pub targets: Vec<&'a Path>,
}

impl<'a> TaskFiles<'a> {
    /// Returns the directories that the task may write to.
    fn writable(&self) -> Vec<&'a Path> {
        let parents = self.targets.iter().filter_map(|target| target.parent());
        parents.filter(|parent| !parent.as_os_str().is_empty()).collect()
    }
}

/// Confines this process irreversibly. Call it while the process has one thread.
///
/// # Errors
/// Fails with one sentence if the kernel refuses a step. The process must then end.
pub(super) fn confine(limits: &ChildLimits, files: &TaskFiles<'_>) -> Result<(), String> {
    let refused = |error: nix::Error| format!("cannot limit the process: {error}");
    let set = |resource, limit| setrlimit(resource, limit, limit).map_err(refused);
    set(Resource::RLIMIT_AS, limits.memory_mib.saturating_mul(1 << 20))?;
    set(Resource::RLIMIT_CPU, limits.cpu_seconds)?;
    set(Resource::RLIMIT_FSIZE, limits.file_mib.saturating_mul(1 << 20))?;
    // A limit of 1 also keeps the kernel from starting a core handler (core(5)).
    set(Resource::RLIMIT_CORE, 1)?;
    let (_, most) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).map_err(refused)?;
    set(Resource::RLIMIT_NOFILE, OPEN_FILES.min(most))?;
    // When memory runs out, the kernel ends the child before the hub.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    nix::sys::prctl::set_dumpable(false).map_err(refused)?;
    nix::sys::prctl::set_no_new_privs().map_err(refused)?;
    backtrail_sandbox::limit_files(&files.readable, &files.writable())
        .and_then(|_| backtrail_sandbox::limit_system_calls(SYSTEM_CALLS.iter().copied()))
        .map_err(|error| error.to_string())
}
