//! Retention: segments of old hours are removed.

use crate::catalog::Listing;
use crate::clock::now;
use crate::hour::Hour;
use crate::store::Store;
use crate::{Error, Result};
use backtrail_profile::UnixNanos;

/// The segments that are removed at once.
const CHUNK: usize = 1000;
/// The attempts if compactions replace segments at the same time.
const ATTEMPTS: usize = 5;

/// The number of days that samples are kept, unless configured.
pub const DEFAULT_DAYS: u32 = 90;

/// Returns the first hour that is kept for a number of days.
#[must_use]
pub fn first_kept(now: UnixNanos, days: u32) -> Hour {
    Hour(Hour::of(now).0.saturating_sub(days.saturating_mul(24)))
}

impl Store {
    /// Removes the segments of all hours before one. Returns their number. Their files are garbage
    /// after the grace time.
    ///
    /// # Errors
    ///
    /// [`Error::Catalog`] if the catalog fails, [`Error::Conflict`] if other jobs replaced segments
    /// at each attempt.
    pub async fn remove_before(&self, hour: Hour) -> Result<usize> {
        let mut removed = 0;
        let mut attempt = 0;
        loop {
            let listing = Listing {
                hours: Hour(0)..hour,
                services: None,
            };
            let mut listed = self.catalog.list(&listing).await?;
            listed.retain(|entry| entry.hour < hour);
            let ids: Vec<_> = listed.iter().take(CHUNK).map(|entry| entry.id).collect();
            if ids.is_empty() {
                return Ok(removed);
            }
            match self.catalog.commit(&[], &ids, now()).await {
                Ok(()) => removed += ids.len(),
                Err(Error::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }
}
