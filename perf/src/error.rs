//! Errors in perf data, and errors of system calls.

use crate::refusal::Refusal;
use std::path::PathBuf;

/// The reason that data was refused, or that a system call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The data ends inside a structure.
    #[error("the {what} at offset {offset:#x} is truncated")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// The start of the structure.
        offset: u64,
    },
    /// A field has an invalid value.
    #[error("the {what} at offset {offset:#x} is invalid: {problem}")]
    Invalid {
        /// The structure.
        what: &'static str,
        /// The start of the structure.
        offset: u64,
        /// The reason that it is invalid.
        problem: String,
    },
    /// An unsupported file format.
    #[error("{0}")]
    Unsupported(String),
    /// A file of sysfs or procfs is missing, unreadable or invalid.
    #[error("{path}: {problem}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A setting that the PMU does not support.
    #[error("{0}")]
    Setting(String),
    /// `perf_event_open(2)` failed.
    #[error("cannot open {what}: {refusal} ({error})", error = std::io::Error::from_raw_os_error(*errno))]
    Open {
        /// The event.
        what: String,
        /// The meaning of the error.
        refusal: Refusal,
        /// The error number.
        errno: i32,
    },
    /// Another system call failed.
    #[error("{call} failed: {error}{hint}", error = std::io::Error::from_raw_os_error(*errno))]
    Call {
        /// The call, and its object.
        call: String,
        /// The error number.
        errno: i32,
        /// Advice that begins with `; `, or an empty string.
        hint: &'static str,
    },
}

impl Error {
    /// Returns whether input was malformed. Unsupported input and failed calls do not count.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Invalid { .. })
    }
}
