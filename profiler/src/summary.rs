//! The state and the result of a recording.

use crate::program::ProgramEnd;
use std::time::Duration;

/// The state of a recording, about once a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The time since the start.
    pub elapsed: Duration,
    /// The number of samples.
    pub samples: u64,
    /// The number of records that the kernel dropped.
    pub lost: u64,
    /// The number of bytes written.
    pub bytes: u64,
    /// The number of files that were removed to keep a spool below its limit.
    pub removed_files: u64,
}

/// The result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The state at the end.
    pub progress: Progress,
    /// The number of stacks of programs.
    pub stacks: u64,
    /// The number of those that do not reach the start of their thread.
    pub incomplete: u64,
    /// The number of stacks that an eBPF program walked. The kernel copied the others.
    pub walked: u64,
    /// The reason why no eBPF program walks stacks. `None`: one does.
    pub no_ebpf: Option<String>,
    /// The reason why the rings were read without real-time priority. `None`: they were with it.
    pub no_priority: Option<String>,
    /// The number of processes whose mappings were read from `/proc`. The kernel described the
    /// mappings of the others.
    pub processes_read: u64,
    /// The end of the program, if one was started.
    pub program: Option<ProgramEnd>,
    /// Sentences about what the recording lacks.
    pub notes: Vec<String>,
}
