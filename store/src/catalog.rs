//! The catalog: the segments that belong to the store.

use crate::Result;
use crate::hour::Hour;
use crate::segment::{SegmentEntry, SegmentId};
use async_trait::async_trait;
use backtrail_profile::UnixNanos;
use std::ops::Range;

/// The conditions of a list of segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The hours.
    pub hours: Range<Hour>,
    /// The services, of which a segment must have one. `None`: any. A catalog may ignore it.
    pub services: Option<Vec<String>>,
}

/// The state of a segment that the catalog knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// The segment belongs to the store.
    Live,
    /// The segment was removed. Queries that began earlier may still read it.
    Removed {
        /// The time of the removal.
        at: UnixNanos,
    },
}

/// A catalog of segments. A segment whose id it does not know does not exist, whatever files there
/// are.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// Adds and removes segments at once, or does nothing. A removed segment stays known until
    /// [`Catalog::forget`].
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`](crate::Error::Conflict) if a segment to be removed is not live, or one
    /// to be added is known. [`Error::Catalog`](crate::Error::Catalog) if the catalog fails.
    async fn commit(&self, add: &[SegmentEntry], remove: &[SegmentId], at: UnixNanos) -> Result<()>;

    /// Returns the live segments, in any order. Further ones do no harm.
    ///
    /// # Errors
    ///
    /// [`Error::Catalog`](crate::Error::Catalog) if the catalog fails.
    async fn list(&self, listing: &Listing) -> Result<Vec<SegmentEntry>>;

    /// Returns the state of each segment. `None`: the id is not known.
    ///
    /// # Errors
    ///
    /// As [`Catalog::list`].
    async fn states(&self, ids: &[SegmentId]) -> Result<Vec<Option<SegmentState>>>;

    /// Returns at most `limit` segments that were removed before a time.
    ///
    /// # Errors
    ///
    /// As [`Catalog::list`].
    async fn removed(&self, before: UnixNanos, limit: usize) -> Result<Vec<(Hour, SegmentId)>>;

    /// Drops removed segments, whose files do not exist any more. Live ones stay.
    ///
    /// # Errors
    ///
    /// As [`Catalog::list`].
    async fn forget(&self, ids: &[SegmentId]) -> Result<()>;
}
