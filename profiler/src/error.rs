//! The errors of taking a profile.

use backtrail_pt::Pid;
use std::path::PathBuf;

/// The reason why a profile could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel does not permit to observe the target.
    #[error(
        "the kernel does not allow to sample {target} (kernel.perf_event_paranoid is {paranoid}): run as root, give CAP_PERFMON, or `sysctl kernel.perf_event_paranoid={needed}`"
    )]
    NotAllowed {
        /// The target.
        target: String,
        /// The current setting.
        paranoid: String,
        /// The setting that would allow it.
        needed: i32,
    },
    /// The process belongs to another user.
    #[error(
        "process {0} is another user's: sample it as that user, as root, or with CAP_PERFMON and CAP_SYS_PTRACE"
    )]
    OtherUser(Pid),
    /// The machine has no such event.
    #[error("{event} cannot be sampled: {reason}")]
    NoEvent {
        /// The event.
        event: String,
        /// The reason.
        reason: String,
    },
    /// No eBPF program can walk stacks.
    #[error("stacks cannot be walked by eBPF: {0}; use `--stacks copy`")]
    NoEbpf(String),
    /// There is no such target.
    #[error("{0}")]
    NoTarget(String),
    /// The program did not start.
    #[error("cannot start {program}: {error}")]
    Program {
        /// The program.
        program: String,
        /// The reason.
        error: std::io::Error,
    },
    /// Another call of perf failed.
    #[error(transparent)]
    Perf(#[from] backtrail_perf::Error),
    /// A block could not be made.
    #[error(transparent)]
    Profile(#[from] backtrail_profile::Error),
    /// The recording cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The recording that takes requests has ended.
    #[error("the recording that takes requests has ended")]
    Ended,
    /// A system call failed.
    #[error("{call} failed: {error}")]
    Call {
        /// The call.
        call: &'static str,
        /// The reason.
        error: std::io::Error,
    },
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
