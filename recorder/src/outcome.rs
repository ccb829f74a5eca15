//! What came of a recording.

use backtrail_bundle::manifest;
use backtrail_pt::{Avma, Pid, Tid};
use std::path::PathBuf;

/// How the recorded program ended; of several processes, the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// Recording ended first. An attached process runs on, one that the recorder started was killed.
    Running,
}

impl Ending {
    /// As a bundle says it; `None`: recording ended first.
    pub(crate) fn of_program(self) -> Option<manifest::Ending> {
        match self {
            Self::Exited(status) => Some(manifest::Ending::Exited(status)),
            Self::Killed(signal) => Some(manifest::Ending::Killed(signal)),
            Self::Running => None,
        }
    }
}

/// The exact sequence of executed instructions of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Golden {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// The address of each executed instruction; a repeated string instruction counts once.
    pub instructions: Vec<Avma>,
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the program ended.
    pub ending: Ending,
    /// Threads recorded.
    pub threads: usize,
    /// Instructions executed under the recorder; `None`: not counted ([`crate::Engine::Translate`]).
    pub instructions: Option<u64>,
    /// Bytes of packets kept.
    pub bytes: u64,
    /// Bytes of packets that rings dropped.
    pub dropped: u64,
    /// Places where control went in a way that no packet tells (OVF in the stream).
    pub gaps: u64,
    /// The bundle, where there is one of all ([`crate::Output::Bundle`]).
    pub bundle: Option<PathBuf>,
    /// Why recording ended before the program did and before anybody wanted it; what was recorded until then is kept.
    pub failure: Option<String>,
    /// With [`crate::RecordOptions::golden`]: the instructions of each thread.
    pub golden: Vec<Golden>,
}
