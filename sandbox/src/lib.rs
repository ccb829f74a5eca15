//! Irreversible limits of a process on itself: the system calls that it may make, and the files
//! that it may open.
//!
//! Processes that read hostile data call [`limit_files`], and then [`limit_system_calls`], before
//! they read. The limits hold until the end of the process, and for all threads that it starts.
//! Call the functions while the process has one thread, after `PR_SET_NO_NEW_PRIVS`.
#![forbid(unsafe_code)]

mod files;
mod system_calls;

pub use files::{FileLimit, limit_files};
pub use system_calls::limit_system_calls;

/// A limit that the kernel refused. The process must then end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list of system calls.
    #[error("cannot limit the system calls of the process: {0}")]
    SystemCalls(String),
    /// The list of files.
    #[error("cannot limit the files of the process: {0}")]
    Files(String),
}
