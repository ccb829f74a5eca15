//! Reads the state of a process and its threads from `/proc` (proc_pid_status(5)).

use crate::RawTid;
use std::fs;

/// Returns a number from `/proc/TID/status`, in the given base.
fn status_number(tid: RawTid, key: &str, base: u32) -> Option<u64> {
    let [number] = status_numbers(tid, [key], base);
    number
}

/// Returns several numbers from `/proc/TID/status`, in the given base. The file is read once.
fn status_numbers<const N: usize>(tid: RawTid, keys: [&str; N], base: u32) -> [Option<u64>; N] {
    let status = fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    keys.map(|key| {
        let mut lines = status.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b":"))?;
        let first = std::str::from_utf8(value).ok()?.split_whitespace().next()?;
        u64::from_str_radix(first, base).ok()
    })
}

/// Returns the process of a thread.
#[must_use]
pub fn thread_group(tid: RawTid) -> Option<RawTid> {
    RawTid::try_from(status_number(tid, "Tgid", 10)?).ok()
}

/// Returns whether the kernel is writing a core of the process of a thread (`CoreDumping`, Linux
/// 4.15).
#[must_use]
pub fn is_dumping_core(tid: RawTid) -> bool {
    status_number(tid, "CoreDumping", 10) == Some(1)
}

/// Returns the id of a thread in its own pid namespace.
#[must_use]
pub fn innermost_id(tid: RawTid) -> Option<u32> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().next_back()?.parse().ok()
}

/// Returns the ids of a process and of one of its threads in their own pid namespace.
#[must_use]
pub fn own_ids(pid: RawTid, tid: RawTid) -> [u64; 2] {
    [pid, tid].map(|id| innermost_id(id).map_or(id as u64, u64::from))
}

/// Returns the tracer of a thread, or `None` if there is none.
#[must_use]
pub fn tracer(tid: RawTid) -> Option<RawTid> {
    let tracer = RawTid::try_from(status_number(tid, "TracerPid", 10)?).ok()?;
    (tracer != 0).then_some(tracer)
}

/// Returns the memory in use by a process, including swap, in bytes. A full core holds at most this
/// much.
#[must_use]
pub fn memory_in_use(pid: RawTid) -> Option<u64> {
    let keys = ["RssAnon", "RssShmem", "VmSwap"];
    let kibibytes = status_numbers(pid, keys, 10);
    kibibytes.into_iter().sum::<Option<u64>>().map(|sum| sum << 10)
}

/// Returns the parent, real user and real group of a process; 0 if unknown.
#[must_use]
pub fn parent_and_owner(pid: RawTid) -> [u32; 3] {
    status_numbers(pid, ["PPid", "Uid", "Gid"], 10).map(|number| number.unwrap_or(0) as u32)
}

/// Returns the real, effective, saved and file system user of a thread, empty if it has ended.
#[must_use]
pub fn user_ids(tid: RawTid) -> Vec<u32> {
    let status = fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.unwrap_or_default()
        .split_whitespace()
        .flat_map(str::parse)
        .collect()
}

/// The action of a process on a signal (`sigaction(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Takes the default action.
    Default,
    /// Ignores it.
    Ignored,
    /// Calls a handler.
    Handled,
}

/// Returns the disposition of a signal in the process of a thread.
#[must_use]
pub fn disposition(tid: RawTid, signal: i32) -> Disposition {
    let [disposition] = dispositions(tid, [signal]);
    disposition
}

/// Returns the dispositions of several signals in the process of a thread.
#[must_use]
pub fn dispositions<const N: usize>(tid: RawTid, signals: [i32; N]) -> [Disposition; N] {
    let [caught, ignored] = status_numbers(tid, ["SigCgt", "SigIgn"], 16).map(Option::unwrap_or_default);
    signals.map(|signal| {
        let bit = signal
            .checked_sub(1)
            .and_then(|bit| 1u64.checked_shl(bit as u32))
            .unwrap_or(0);
        if caught & bit != 0 {
            Disposition::Handled
        } else if ignored & bit != 0 {
            Disposition::Ignored
        } else {
            Disposition::Default
        }
    })
}

/// Returns whether a signal has the default disposition.
#[must_use]
pub fn is_default_signal(tid: RawTid, signal: i32) -> bool {
    disposition(tid, signal) == Disposition::Default
}

/// Returns the signals that a thread blocks at the moment: signal N is bit N-1.
#[must_use]
pub fn blocked_signals(tid: RawTid) -> Option<u64> {
    status_number(tid, "SigBlk", 16)
}

/// Returns whether a signal is pending for a stopped thread.
#[must_use]
pub fn is_pending(tid: RawTid, signal: i32) -> bool {
    let bit = signal
        .checked_sub(1)
        .and_then(|bit| 1u64.checked_shl(bit as u32))
        .unwrap_or(0);
    status_number(tid, "SigPnd", 16).unwrap_or(0) & bit != 0
}

/// Returns the number of seccomp filters of a thread (`Seccomp_filters`, Linux 5.9).
#[must_use]
pub fn seccomp_filters(tid: RawTid) -> u64 {
    status_number(tid, "Seccomp_filters", 10).unwrap_or(0)
}

/// The default action of a signal (signal(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// Nothing happens.
    Ignore,
    /// The process stops.
    Stop,
    /// The process ends, with or without a core.
    Terminate,
}

/// Returns the default action of a signal.
#[must_use]
pub fn default_action(signal: i32) -> DefaultAction {
    match signal {
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT => DefaultAction::Ignore,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => DefaultAction::Stop,
        _ => DefaultAction::Terminate,
    }
}

/// Returns the state letter and the flags of a thread (`/proc/TID/stat`).
fn state_and_flags(tid: RawTid) -> Option<(String, u64)> {
    let stat = fs::read(format!("/proc/{tid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(5)?.parse().ok()?))
}

/// Returns whether a thread runs, or waits only for a processor.
#[must_use]
pub fn is_runnable(tid: RawTid) -> bool {
    state_and_flags(tid).is_some_and(|(state, _)| state == "R")
}

/// Returns whether two processes run in the same memory (kcmp(2)). Returns `false` if the kernel
/// does not say.
#[must_use]
pub fn shares_memory(one: RawTid, other: RawTid) -> bool {
    /// `KCMP_VM` (`linux/kcmp.h`).
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: kcmp(2) does not access our memory.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

/// Returns whether a thread has ended. Its entry may still exist.
#[must_use]
pub fn has_ended(tid: RawTid) -> bool {
    state_and_flags(tid).is_none_or(|(state, _)| matches!(state.as_str(), "Z" | "X"))
}

/// Returns whether a thread has ended or is about to end, as after SIGKILL. Its memory may be gone.
#[must_use]
pub fn is_ending(tid: RawTid) -> bool {
    /// `PF_EXITING` (`linux/sched.h`).
    const EXITING: u64 = 0x4;
    state_and_flags(tid)
        .is_none_or(|(state, flags)| matches!(state.as_str(), "Z" | "X") || flags & EXITING != 0)
}

/// Returns whether a thread of a process runs only in the kernel, such as those of io_uring and
/// vhost.
#[must_use]
pub fn is_kernel_thread(tid: RawTid) -> bool {
    /// `PF_IO_WORKER`, `PF_USER_WORKER` and `PF_KTHREAD` (`linux/sched.h`).
    const FLAGS: u64 = 0x10 | 0x4000 | 0x20_0000;
    state_and_flags(tid).is_some_and(|(_, flags)| flags & FLAGS != 0)
}

/// Returns the current threads of a process.
#[must_use]
pub fn threads(pid: RawTid) -> Vec<RawTid> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns a thread that still has the memory of a process: the first thread, or another one if the
/// first has ended.
#[must_use]
pub fn thread_with_memory(pid: RawTid) -> RawTid {
    /// The maximum number of threads to try.
    const MAX_TRIES: usize = 64;
    // A path that is too long to be read still exists.
    let has = |tid: &RawTid| match fs::read_link(format!("/proc/{pid}/task/{tid}/exe")) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::ENAMETOOLONG),
    };
    match has(&pid) {
        true => pid,
        false => threads(pid).into_iter().take(MAX_TRIES).find(has).unwrap_or(pid),
    }
}

/// Returns the name of a thread.
#[must_use]
pub fn thread_name(pid: RawTid, tid: RawTid) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

/// Returns the path of the program of a process.
#[must_use]
pub fn program(pid: RawTid) -> Option<String> {
    Some(
        fs::read_link(format!("/proc/{}/exe", thread_with_memory(pid)))
            .ok()?
            .to_string_lossy()
            .into_owned(),
    )
}

/// Returns the command line of a process.
#[must_use]
pub fn command_line(pid: RawTid) -> Vec<String> {
    let text = fs::read(format!("/proc/{}/cmdline", thread_with_memory(pid))).unwrap_or_default();
    let words = text.strip_suffix(&[0]).unwrap_or(&text).split(|byte| *byte == 0);
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .filter(|_| !text.is_empty())
        .collect()
}

/// Returns the auxiliary vector of a process.
#[must_use]
pub fn auxiliary_vector(pid: RawTid) -> Vec<(u64, u64)> {
    let bytes = fs::read(format!("/proc/{}/auxv", thread_with_memory(pid))).unwrap_or_default();
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| {
            word.iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte))
        })
        .collect();
    let pairs = words
        .chunks_exact(2)
        .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)));
    pairs.take_while(|(kind, _)| *kind != 0).collect()
}

/// Returns the address space limit of a process in bytes (`RLIMIT_AS`), or `None` if unlimited.
#[must_use]
pub fn address_space_limit(pid: RawTid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the kinds of mappings that a process includes in a core (core(5), "coredump_filter").
#[must_use]
pub fn core_filter(pid: RawTid) -> u32 {
    /// The default of the kernel: anonymous memory and ELF headers.
    const DEFAULT: u32 = 0x33;
    let text =
        fs::read_to_string(format!("/proc/{}/coredump_filter", thread_with_memory(pid))).unwrap_or_default();
    u32::from_str_radix(text.trim(), 16).unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_status_is_read() {
        let pid = std::process::id() as RawTid;
        assert_eq!(thread_group(pid), Some(pid));
        assert!(threads(pid).contains(&pid));
        assert_eq!(parent_and_owner(pid)[0], std::os::unix::process::parent_id());
        assert_eq!(command_line(pid).first(), std::env::args().next().as_ref());
        assert!(
            auxiliary_vector(pid)
                .iter()
                .any(|(kind, value)| (*kind, *value) == (6, 4096))
        );
        assert_eq!(user_ids(pid).len(), 4);
        assert!(user_ids(-1).is_empty() && !is_dumping_core(pid));
        assert_eq!(thread_group(-1), None);
        assert!(memory_in_use(pid).is_some_and(|bytes| bytes > 4096 && bytes < 1 << 40));
        assert!(innermost_id(pid).is_some() && innermost_id(-1).is_none());
    }

    #[test]
    fn killed_processes_are_ending() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as RawTid;
        assert!(!is_ending(pid) && !is_ending(std::process::id() as RawTid));
        child.kill().unwrap();
        while !has_ended(pid) {
            std::thread::yield_now();
        }
        assert!(is_ending(pid));
        child.wait().unwrap();
        assert!(is_ending(pid));
    }

    #[test]
    fn rust_ignores_sigpipe_and_leaves_sigterm_alone() {
        let pid = std::process::id() as RawTid;
        assert!(is_default_signal(pid, libc::SIGTERM));
        assert!(!is_default_signal(pid, libc::SIGPIPE));
        assert_eq!(default_action(libc::SIGTERM), DefaultAction::Terminate);
    }
}
