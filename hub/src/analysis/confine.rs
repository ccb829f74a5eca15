//! The sandbox of the child process: resource limits, and a list of permitted system calls.
//!
//! The child keeps the user of the hub. It can read files and write below its own directory, but it
//! has no network, starts no program, and traces and signals no other process.

use clap::Args;
use nix::sys::resource::{Resource, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

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

/// Confines this process irreversibly. Call it while the process has one thread.
///
/// # Errors
/// Fails with one sentence if the kernel refuses a step. The process must then end.
pub(super) fn confine(limits: &ChildLimits) -> Result<(), String> {
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
    filter().map_err(|error| format!("cannot limit the system calls of the process: {error}"))
}

/// Installs the list of permitted system calls.
fn filter() -> Result<(), seccompiler::Error> {
    let arch = TargetArch::x86_64;
    // Without clone3(), the C library starts threads with clone(). A filter cannot check the flags
    // of clone3().
    let no_clone3 = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        arch,
    )?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        SYSTEM_CALLS.iter().map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_clone3, Vec::new());
    let equal = |argument, mask: u64, value: u64| -> Result<SeccompRule, seccompiler::Error> {
        let operator = SeccompCmpOp::MaskedEq(mask);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    let executable = libc::PROT_EXEC as u64;
    rules.insert(libc::SYS_mmap, vec![equal(2, executable, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![equal(2, executable, 0)?]);
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![equal(0, thread, thread)?]);
    rules.insert(
        libc::SYS_prctl,
        vec![equal(0, u64::MAX, libc::PR_SET_NAME as u64)?],
    );
    // abort() signals the thread itself.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![equal(0, u64::MAX, own)?]);
    let allowed = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        arch,
    )?;
    for filter in [no_clone3, allowed] {
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}
