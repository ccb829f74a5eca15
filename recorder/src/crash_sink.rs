//! Who keeps the crashes of a recording that makes no bundle but these.

use crate::error::Error;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::{Crash, Manifest};
use backtrail_pt::Pid;

/// Takes the crashes of a recording that may run for months ([`crate::Output::Crashes`]): a bundle for each process
/// that a signal ends, and none for those that end by themselves.
///
/// Its functions are called on the thread that traces, while at least one process stands still: they should not take
/// long.
pub trait CrashSink: Send {
    /// A process is recorded from now on. It has not run since it was started, or attached to.
    fn process_began(&mut self, pid: Pid);

    /// It is not recorded any more: it has ended, or cannot be followed.
    fn process_ended(&mut self, pid: Pid);

    /// A signal without handler is about to end a process, which stands still. `name` is its short name.
    ///
    /// `None`: it is not to be saved.
    fn crashed(&mut self, crash: &Crash, name: &str) -> Option<CrashDraft>;

    /// The signal has ended the process. All of the bundle is written but its descriptions: finish it.
    fn save(&mut self, saved: SavedCrash);

    /// What was begun with [`Self::crashed`] could not be written, and leaves nothing behind. The recording goes on.
    fn failed(&mut self, pid: Pid, error: Error);
}

/// Where a crash goes.
#[derive(Debug)]
pub struct CrashDraft {
    /// Writes the bundle.
    pub writer: Writer,
    /// How much of the memory it gets.
    pub memory: Memory,
}

/// How much of a crashed process's memory its core holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// What its `coredump_filter` says (core(5)), if that is no more than so many bytes; else the stacks.
    UpTo(u64),
    /// The stacks of its threads.
    Stacks,
    /// Nothing: registers alone.
    Nothing,
}

/// A crash whose process is gone.
#[derive(Debug)]
pub struct SavedCrash {
    /// Has everything but the descriptions.
    pub writer: Writer,
    /// These. `collected` says when the crash was, how many bytes of packets there are, and what is missing; what
    /// others saw of the crash is for the sink to add.
    pub manifest: Manifest,
}
