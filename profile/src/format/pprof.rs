//! pprof's `profile.proto`, packed by gzip or not.
//!
//! Source: `proto/profile.proto` of <https://github.com/google/pprof>.

mod read;
mod schema;
mod write;

pub(super) use read::unpacked;
pub use read::{is_pprof, read, read_within};
pub use write::write;

/// Label keys that stand for the thread of a sample.
const PID: &str = "pid";
const TID: &str = "tid";
const PROCESS: &str = "process";
const THREAD: &str = "thread";

#[cfg(test)]
mod tests;
