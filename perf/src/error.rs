//! What can be wrong with perf's bytes, and with the kernel's answer to a call.

use crate::event::Refusal;
use std::path::PathBuf;

/// Why bytes were refused, or why the kernel did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end inside a structure.
    #[error("the {what} at offset {offset:#x} is cut short")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Where it starts.
        offset: u64,
    },
    /// A field's value cannot be.
    #[error("the {what} at offset {offset:#x} is not possible: {problem}")]
    Invalid {
        /// The structure.
        what: &'static str,
        /// Where it starts.
        offset: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A form of the file that is not read.
    #[error("{0}")]
    Unsupported(String),
    /// A file of sysfs or procfs is not there, cannot be read, or holds what it cannot hold.
    #[error("{path}: {problem}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A setting that the PMU does not take.
    #[error("{0}")]
    Setting(String),
    /// `perf_event_open(2)` was refused.
    #[error("{what} does not open: {refusal} ({error})", error = std::io::Error::from_raw_os_error(*errno))]
    Open {
        /// The event.
        what: String,
        /// What the refusal means.
        refusal: Refusal,
        /// The kernel's number for it.
        errno: i32,
    },
    /// Another call was refused.
    #[error("{call} failed: {error}{hint}", error = std::io::Error::from_raw_os_error(*errno))]
    Call {
        /// The call, and on what.
        call: String,
        /// The kernel's number.
        errno: i32,
        /// What would help, beginning with `; `, or nothing.
        hint: &'static str,
    },
}

impl Error {
    /// Whether outside input was malformed, as against valid but not read by us, or a call that failed.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Invalid { .. })
    }
}
