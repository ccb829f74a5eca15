//! The sandboxes of the sender and of its source reader: resource limits, and system calls that
//! they never need.
//!
//! The daemon starts the sender as a user that nothing else on the machine uses, without
//! capabilities. The sender needs files and the network, so that its filter lists what is denied.

use crate::error::{Error, Result};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;

/// The most bytes of memory, without mapped files.
const DATA: u64 = 512 << 20;
/// The most open files.
const OPEN_FILES: u64 = 512;
/// The most threads and processes of the sender's user, with those of the source reader.
const THREADS: u64 = 256;
/// The memory of the source reader in bytes, and its largest file.
const READER_DATA: u64 = 2 << 30;
const READER_FILE: u64 = 64 << 20;

/// The system calls that fail with EPERM.
const DENIED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_listen,
];

/// The further system calls that the source reader never needs: those of the network.
const DENIED_TO_READER: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_fork,
    libc::SYS_vfork,
];

/// Limits this process, which is the sender. Call it while it has one thread.
///
/// # Errors
/// When the kernel refuses.
pub fn confine() -> Result<()> {
    confine_to(DATA, None, &[])
}

/// Limits this process, which reads debug information and source files for the sender. Call it
/// while it has one thread.
///
/// # Errors
/// When the kernel refuses.
pub fn confine_source_reader() -> Result<()> {
    confine_to(READER_DATA, Some(READER_FILE), DENIED_TO_READER)
}

/// Allows this process to use this number of seconds of processor time from now on. The kernel ends
/// a process that uses more.
///
/// # Errors
/// When the kernel refuses.
pub fn limit_processor_time(seconds: u64) -> Result<()> {
    let failed = || Error::system("limit the processor time");
    let used = getrusage(UsageWho::RUSAGE_SELF).map_err(failed())?;
    let used = used.user_time().tv_sec() + used.system_time().tv_sec();
    let limit = u64::try_from(used).unwrap_or(0).saturating_add(seconds);
    let (_, most) = getrlimit(Resource::RLIMIT_CPU).map_err(failed())?;
    setrlimit(Resource::RLIMIT_CPU, limit.min(most), most).map_err(failed())
}

fn confine_to(data: u64, file: Option<u64>, denied: &[i64]) -> Result<()> {
    // The daemon blocks the signals that end it, and the sender inherits that.
    let unblocked = nix::sys::signal::SigSet::empty().thread_set_mask();
    unblocked.map_err(Error::system("set up signals"))?;
    let set = |resource, limit| setrlimit(resource, limit, limit).map_err(Error::system("limit the sender"));
    set(Resource::RLIMIT_DATA, data)?;
    if let Some(file) = file {
        set(Resource::RLIMIT_FSIZE, file)?;
    }
    // A limit of 1 also keeps the kernel from starting a core handler (core(5)).
    set(Resource::RLIMIT_CORE, 1)?;
    set(Resource::RLIMIT_NOFILE, OPEN_FILES)?;
    if !nix::unistd::Uid::effective().is_root() {
        set(Resource::RLIMIT_NPROC, THREADS)?;
    }
    // When memory runs out, the kernel kills the sender before the daemon.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    let refused = || Error::system("protect the sender");
    nix::sys::prctl::set_dumpable(false).map_err(refused())?;
    nix::sys::prctl::set_no_new_privs().map_err(refused())?;
    filter(denied)
        .map_err(|error| Error::Unable(format!("the sender's system calls could not be limited: {error}")))
}

fn filter(more: &[i64]) -> std::result::Result<(), seccompiler::Error> {
    let denied = DENIED.iter().chain(more);
    let rules: BTreeMap<i64, Vec<_>> = denied.map(|&call| (call, Vec::new())).collect();
    let denied = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        TargetArch::x86_64,
    )?;
    let program: BpfProgram = denied.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const INSIDE: &str = "BACKTRAIL_TEST_CONFINED_SENDER";

    /// Runs in a separate process, which [`sender_cannot_run_programs`] starts.
    #[test]
    #[ignore = "limits its process"]
    fn confined() {
        if std::env::var_os(INSIDE).is_none() {
            return;
        }
        confine().unwrap();
        let started = Command::new("/bin/true").status();
        assert!(started.is_err(), "a program was started");
        let listener = std::net::TcpListener::bind("127.0.0.1:0");
        assert!(listener.is_err(), "it listens");
        let refused = std::net::TcpStream::connect("127.0.0.1:1").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        std::thread::spawn(|| ()).join().unwrap();
        eprintln!("confined");
    }

    #[test]
    fn sender_cannot_run_programs() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "sender::confine::tests::confined",
            ])
            .args(["--test-threads", "1"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("confined\n"),
            "{said}{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}
