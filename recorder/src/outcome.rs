//! The outcome of a recording.

use backtrail_bundle::manifest;
use backtrail_pt::{Avma, Pid, Tid};
use std::path::PathBuf;

/// How the recorded program ended; with several processes, how the first one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program exited with this status.
    Exited(i32),
    /// This signal killed the program.
    Killed(i32),
    /// Recording ended first. An attached process continues, and a started one was killed.
    Running,
}

impl Ending {
    /// Returns the ending as a bundle stores it, or `None` if recording ended first.
    pub(crate) fn of_program(self) -> Option<manifest::Ending> {
        match self {
            Self::Exited(status) => Some(manifest::Ending::Exited(status)),
            Self::Killed(signal) => Some(manifest::Ending::Killed(signal)),
            Self::Running => None,
        }
    }
}

/// The processes that have run, with those that still ran when recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// The number of recorded processes.
    pub recorded: usize,
    /// The number of processes whose last program was not recorded ([`crate::ProgramFilter`]).
    pub unrecorded: usize,
}

/// The exact sequence of instructions that a thread executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Golden {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// The address of each executed instruction. A repeated string instruction counts once.
    pub instructions: Vec<Avma>,
}

/// The outcome of a recording.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the program ended.
    pub ending: Ending,
    /// The number of recorded threads.
    pub threads: usize,
    /// The number of executed instructions, or `None` if they were not counted
    /// ([`crate::Engine::Translate`]).
    pub instructions: Option<u64>,
    /// Packet bytes kept.
    pub bytes: u64,
    /// Packet bytes that rings dropped.
    pub dropped: u64,
    /// Control transfers that no packet describes; each is an OVF in the stream.
    pub gaps: u64,
    /// The number of processes ([`crate::Output::Crashes`] only).
    pub processes: ProcessCounts,
    /// The path of the bundle ([`crate::Output::Bundle`] only).
    pub bundle: Option<PathBuf>,
    /// The reason that recording ended before the program ended or a user stopped it. The recording
    /// up to that point is saved.
    pub failure: Option<String>,
    /// The instructions of each thread, with [`crate::RecordOptions::golden`].
    pub golden: Vec<Golden>,
}
