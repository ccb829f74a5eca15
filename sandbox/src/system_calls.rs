//! A list of permitted system calls (seccomp).

use crate::Error;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

/// Permits these system calls only. All others fail with EPERM.
///
/// Some calls are limited further if the list has them:
///
/// | call | limit |
/// |---|---|
/// | `mmap`, `mprotect` | no executable memory |
/// | `clone` | a thread, not a process |
/// | `prctl` | the name of a thread |
/// | `tgkill` | the process itself, for `abort()` |
///
/// # Errors
/// Fails if the kernel refuses the list.
pub fn limit_system_calls(calls: impl IntoIterator<Item = i64>) -> Result<(), Error> {
    install(calls.into_iter().collect()).map_err(|error| Error::SystemCalls(error.to_string()))
}

fn install(calls: Vec<i64>) -> Result<(), seccompiler::Error> {
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
        calls.into_iter().map(|call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_clone3, Vec::new());
    let executable = libc::PROT_EXEC as u64;
    let thread = libc::CLONE_THREAD as u64;
    for (call, argument, mask, value) in [
        (libc::SYS_mmap, 2, executable, 0),
        (libc::SYS_mprotect, 2, executable, 0),
        (libc::SYS_clone, 0, thread, thread),
        (libc::SYS_prctl, 0, u64::MAX, libc::PR_SET_NAME as u64),
        (libc::SYS_tgkill, 0, u64::MAX, u64::from(std::process::id())),
    ] {
        if let Some(rule) = rules.get_mut(&call) {
            let operator = SeccompCmpOp::MaskedEq(mask);
            let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)?;
            *rule = vec![SeccompRule::new(vec![condition])?];
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// The list holds for the calling thread, so that a test has a thread of its own.
    #[test]
    fn other_system_calls_fail() {
        let calls = [
            libc::SYS_read,
            libc::SYS_write,
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_mprotect,
            libc::SYS_madvise,
            libc::SYS_brk,
            libc::SYS_futex,
            libc::SYS_rt_sigprocmask,
            libc::SYS_sigaltstack,
            libc::SYS_sched_yield,
            libc::SYS_prctl,
            libc::SYS_gettid,
            libc::SYS_getpid,
            libc::SYS_exit,
        ];
        let limited = std::thread::spawn(move || {
            limit_system_calls(calls).unwrap();
            let opened = std::fs::File::open("/").map(|_| ()).unwrap_err().kind();
            let started = std::process::Command::new("/bin/true").status().is_err();
            (opened, started, vec![1_u8; 1 << 20].len())
        });
        let found = limited.join().unwrap();
        assert_eq!(found, (ErrorKind::PermissionDenied, true, 1 << 20));
        assert!(std::fs::File::open("/").is_ok());
    }
}
