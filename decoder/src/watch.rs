//! Cancellation and progress of long work.

use std::sync::atomic::{AtomicBool, Ordering};

/// The progress of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current stage.
    pub stage: Stage,
    /// The work done, in the stage's unit.
    pub done: u64,
    /// The total work, in the stage's unit.
    pub total: u64,
}

/// The kinds of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Downloading the trace; the unit is a byte.
    Fetch,
    /// Unpacking a compressed core; the unit is a compressed byte.
    Unpack,
    /// Decoding; the unit is a byte of trace.
    Decode,
    /// Building call forests; the unit is an instruction.
    Forest,
    /// Building the search index; the unit is an execution of a path.
    Index,
    /// Searching a history; the unit is an instruction.
    Search,
    /// Sorting calls by function; the unit is a call.
    Calls,
    /// Measuring calls; the unit is a call.
    Measure,
    /// Counting branches; the unit is an instruction.
    Branches,
    /// Writing histories in another format; the unit is a call.
    Export,
    /// Replaying recorded values; the unit is an instruction.
    Replay,
}

impl Stage {
    /// Returns a description in a few words, for a user.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Fetch => "downloading",
            Self::Unpack => "unpacking the core",
            Self::Decode => "decoding",
            Self::Forest => "finding calls",
            Self::Index => "indexing",
            Self::Search => "searching",
            Self::Calls => "sorting calls by function",
            Self::Measure => "measuring calls",
            Self::Branches => "counting branches",
            Self::Export => "exporting",
            Self::Replay => "replaying values",
        }
    }
}

/// A handle to cancel long work and to observe its progress.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// If set, for example by a Ctrl-C handler, the work ends with [`Canceled`].
    pub cancel: &'a AtomicBool,
    /// Receives progress, many times a second, from any working thread.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

static NEVER: AtomicBool = AtomicBool::new(false);

impl Watch<'static> {
    /// Returns a handle without observer.
    #[must_use]
    pub fn none() -> Self {
        Self {
            cancel: &NEVER,
            progress: &|_| {},
        }
    }
}

impl Watch<'_> {
    /// Returns whether the work is canceled.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Reports progress; returns an error if the work is canceled.
    pub fn report(&self, stage: Stage, done: u64, total: u64) -> Result<(), Canceled> {
        if self.is_canceled() {
            return Err(Canceled);
        }
        (self.progress)(Progress { stage, done, total });
        Ok(())
    }

    /// Reports the end of the work.
    pub fn end(&self, stage: Stage) {
        (self.progress)(Progress {
            stage,
            done: 1,
            total: 1,
        });
    }
}

/// Returned when the caller canceled the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("canceled")]
pub struct Canceled;
