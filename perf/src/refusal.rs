//! The meaning of errors of `perf_event_open(2)`.

use std::fmt;

/// The meaning of an error of `perf_event_open(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `EACCES`, `EPERM`.
    NotAllowed,
    /// `EBUSY`: the PMU is in use.
    Busy,
    /// `ENODEV`, `ENXIO`: the processor is offline.
    CpuOff,
    /// `ENOENT`: the PMU or event does not exist.
    NoEvent,
    /// `EOPNOTSUPP`: the PMU does not support this.
    Unsupported,
    /// `ESRCH`: the thread has ended.
    NoThread,
    /// `EMFILE`, `ENFILE`: too many files are open.
    TooManyFiles,
    /// `EINVAL`, `E2BIG`: the kernel does not support a part of the attributes.
    Unknown,
    /// `ENOMEM`.
    NoMemory,
    /// Any other.
    Other,
}

#[cfg(target_os = "linux")]
impl Refusal {
    pub(crate) fn of(errno: i32) -> Self {
        match errno {
            libc::EACCES | libc::EPERM => Self::NotAllowed,
            libc::EBUSY => Self::Busy,
            libc::ENODEV | libc::ENXIO => Self::CpuOff,
            libc::ENOENT => Self::NoEvent,
            libc::EOPNOTSUPP => Self::Unsupported,
            libc::ESRCH => Self::NoThread,
            libc::EMFILE | libc::ENFILE => Self::TooManyFiles,
            libc::EINVAL | libc::E2BIG => Self::Unknown,
            libc::ENOMEM => Self::NoMemory,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => {
                "permission denied: run as root, give CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=-1`"
            }
            Self::Busy => "it is in use: end other traces (perf, gdb, a hypervisor) and try again",
            Self::CpuOff => "the processor is offline",
            Self::NoEvent => "the kernel has no such event",
            Self::Unsupported => "the processor or the kernel does not support it",
            Self::NoThread => "the thread has ended",
            Self::TooManyFiles => "too many files are open: raise the limit (`ulimit -n`)",
            Self::Unknown => "the kernel does not support a part of the attributes",
            Self::NoMemory => "not enough memory",
            Self::Other => "the kernel refuses",
        })
    }
}
