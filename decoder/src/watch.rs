//! Cancellation and progress, handed into everything that may take long.

use std::sync::atomic::{AtomicBool, Ordering};

/// How far long work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Done so far, in the stage's unit.
    pub done: u64,
    /// All there is to do, in the stage's unit.
    pub total: u64,
}

/// The kinds of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Fetching the trace from elsewhere; the unit is a byte.
    Fetch,
    /// Decoding; the unit is a byte of trace.
    Decode,
    /// Building call forests; the unit is an instruction.
    Forest,
    /// Making the index for searches; the unit is an execution of a path.
    Index,
    /// Searching a history; the unit is an instruction.
    Search,
    /// Finding out which calls each function has; the unit is a call.
    Calls,
    /// Measuring calls; the unit is a call.
    Measure,
    /// Writing histories out in another format; the unit is a call.
    Export,
}

impl Stage {
    /// In a word or some, for a person who waits.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Fetch => "downloading",
            Self::Decode => "decoding",
            Self::Forest => "finding calls",
            Self::Index => "indexing",
            Self::Search => "searching",
            Self::Calls => "sorting calls by function",
            Self::Measure => "measuring calls",
            Self::Export => "exporting",
        }
    }
}

/// Lets the caller stop long work and see how far it is.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Set from anywhere, for example a Ctrl-C handler: the work ends with [`Canceled`].
    pub cancel: &'a AtomicBool,
    /// Called now and then, many times a second, by any of the threads that work.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

static NEVER: AtomicBool = AtomicBool::new(false);

impl Watch<'static> {
    /// Nobody watches.
    #[must_use]
    pub fn none() -> Self {
        Self {
            cancel: &NEVER,
            progress: &|_| {},
        }
    }
}

impl Watch<'_> {
    /// The work shall stop.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Reports progress; an error when the work shall stop.
    pub fn report(&self, stage: Stage, done: u64, total: u64) -> Result<(), Canceled> {
        if self.is_canceled() {
            return Err(Canceled);
        }
        (self.progress)(Progress { stage, done, total });
        Ok(())
    }

    /// Reports that the work has ended, wherever it was.
    pub fn end(&self, stage: Stage) {
        (self.progress)(Progress {
            stage,
            done: 1,
            total: 1,
        });
    }
}

/// The caller asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("canceled")]
pub struct Canceled;
