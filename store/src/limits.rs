//! The limits of a query, its cancellation, and the account of what it read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The limits of a query. A query that reaches one of the first three ends early, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of samples that are read.
    pub bytes: u64,
    /// The samples that are read.
    pub rows: u64,
    /// The time of the end. `None`: no limit.
    pub deadline: Option<Instant>,
    /// The bytes of memory for sums. A query that needs more fails.
    pub memory: u64,
    /// Whether a segment with a missing file is left out. If not, the query fails.
    pub skip_missing: bool,
}

/// 64 GiB, 10 billion samples, no deadline, 1 GiB of memory.
impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            rows: 10_000_000_000,
            deadline: None,
            memory: 1 << 30,
            skip_missing: false,
        }
    }
}

/// A flag that cancels a query. Its clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels the query. It fails within a fraction of a second.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the query was canceled.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The limit that ended a query early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// The bytes of samples.
    Bytes,
    /// The number of samples.
    Rows,
    /// The deadline.
    Deadline,
}

/// The account of what a query read and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The segments whose description matched.
    pub segments: u64,
    /// The segments that the catalog listed, but that cannot have a sample of the filter.
    pub segments_pruned: u64,
    /// The segments that were read to their end.
    pub segments_read: u64,
    /// The row groups that were read.
    pub row_groups: u64,
    /// The row groups that were left out by their statistics.
    pub row_groups_pruned: u64,
    /// The samples that were read.
    pub rows: u64,
    /// The bytes of samples that were read.
    pub bytes: u64,
    /// The samples of idle threads that a rule left out when the segments were stored. Those are of
    /// whole hours, and of the services that the filter names.
    pub idle: u64,
    /// The missing files of segments that were left out.
    pub missing: Vec<String>,
    /// The limit that ended the query. The newest hours are read first.
    pub truncated: Option<LimitKind>,
}

impl Coverage {
    /// Returns whether the result has all samples of the filter.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.truncated.is_none() && self.missing.is_empty()
    }
}
