//! The interface to a caller that stores crashes, for recordings that keep nothing else.

use crate::Ending;
use crate::error::Error;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::{Crash, Manifest};
use backtrail_pt::Pid;

/// Receives the crashes of a long recording ([`crate::Output::Crashes`]): one bundle for each
/// process that a signal ends. Processes that exit leave no bundle unless the sink asks for it.
///
/// The tracing thread calls these functions while at least one process is stopped. They should
/// return quickly.
pub trait CrashSink: Send {
    /// Reports that recording of a process has begun. The process has not run since it was started
    /// or attached to.
    fn process_began(&mut self, pid: Pid);

    /// Reports that a process is no longer recorded, because it ended or cannot be traced.
    fn process_ended(&mut self, pid: Pid);

    /// Reports that a signal without a handler is about to end a process, which is stopped. `name`
    /// is its short name, and `program` that of its program.
    ///
    /// Returns the writer of the crash bundle, or `None` if the crash is not to be saved.
    fn crashed(&mut self, crash: &Crash, name: &str, program: &str) -> Option<CrashDraft>;

    /// Reports that a process has ended for which [`Self::crashed`] returned no draft, or that it
    /// still ran when recording ended.
    ///
    /// Returns the writer of its bundle, or `None` if nothing of it is to be saved.
    fn ended(&mut self, _process: &EndedProcess<'_>) -> Option<Writer> {
        None
    }

    /// Takes a bundle whose process has ended. Only the manifest is missing: the sink completes and
    /// writes it.
    fn save(&mut self, saved: SavedCrash);

    /// Reports that the bundle of [`Self::crashed`] could not be written and was removed. Recording
    /// goes on.
    fn failed(&mut self, pid: Pid, error: Error);
}

/// A process that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedProcess<'a> {
    /// The process.
    pub pid: Pid,
    /// The name of its program.
    pub program: &'a str,
    /// How it ended. [`Ending::Running`]: recording ended first.
    pub ending: Ending,
}

/// The destination of a crash bundle.
#[derive(Debug)]
pub struct CrashDraft {
    /// Writes the bundle.
    pub writer: Writer,
    /// How much of the process memory the core holds.
    pub memory: Memory,
}

/// How much of a crashed process's memory its core holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The memory that `coredump_filter` selects (core(5)), or only the stacks if it exceeds this
    /// many bytes.
    UpTo(u64),
    /// Only the stacks of the threads.
    Stacks,
    /// No memory: only registers.
    Nothing,
}

/// The bundle of a process that has ended.
#[derive(Debug)]
pub struct SavedCrash {
    /// Has written everything except the manifest.
    pub writer: Writer,
    /// The manifest. `collected` of a crash holds the time of the crash, the size of the packets
    /// and a list of missing parts. The sink may add what other sources report of the crash.
    pub manifest: Manifest,
}
