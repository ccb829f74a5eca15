//! The catalog of the profile store: segments in the hub's database, files in its object store.

use crate::database::Database;
use crate::database::profile_segments::SegmentChange;
use crate::error::Error;
use crate::objects::Objects;
use async_trait::async_trait;
use backtrail_profile::UnixNanos;
use backtrail_store::{
    Catalog, Hour, Listing, PushHash, Result, SegmentEntry, SegmentId, SegmentState, TableKind,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The prefix of the store's files.
pub const PREFIX: &str = "profiles";

/// The catalog.
#[derive(Clone, Debug)]
pub struct ProfileCatalog {
    database: Database,
    objects: Objects,
    /// The hashes of the pushes that the commits have.
    pushes: Arc<Mutex<Vec<PushHash>>>,
}

impl ProfileCatalog {
    /// Returns the catalog of a database and an object store.
    #[must_use]
    pub fn new(database: Database, objects: Objects) -> Self {
        Self {
            database,
            objects,
            pushes: Arc::default(),
        }
    }

    /// Returns the same catalog, without the pushes of other commits.
    #[must_use]
    pub fn for_one_commit(&self) -> Self {
        Self::new(self.database.clone(), self.objects.clone())
    }

    /// Adds a push, which counts as stored after the next commit.
    pub fn note(&self, hash: PushHash) {
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        pushes.push(hash);
    }
}

/// Returns an error of the hub as one of the store.
fn of_store(error: Error) -> backtrail_store::Error {
    match error {
        Error::Segment(error) => error,
        other => backtrail_store::Error::Catalog(other.to_string()),
    }
}

#[async_trait]
impl Catalog for ProfileCatalog {
    async fn commit(&self, added: &[SegmentEntry], removed: &[SegmentId], at: UnixNanos) -> Result<()> {
        // A sender forgets what is acknowledged, so that a power cut must not undo it.
        for entry in added {
            for kind in TableKind::ALL {
                let key = format!("{PREFIX}/{}", entry.key(kind));
                self.objects.flush(&key).await.map_err(of_store)?;
            }
        }
        let pushes = {
            let pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
            pushes.clone()
        };
        let change = SegmentChange {
            added,
            removed,
            at,
            pushes: &pushes,
        };
        self.database.change_segments(change).await.map_err(of_store)?;
        self.database.flush().await.map_err(of_store)
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<SegmentEntry>> {
        self.database
            .live_segments(&listing.hours)
            .await
            .map_err(of_store)
    }

    async fn states(&self, ids: &[SegmentId]) -> Result<Vec<Option<SegmentState>>> {
        self.database.segment_states(ids).await.map_err(of_store)
    }

    async fn removed(&self, before: UnixNanos, limit: usize) -> Result<Vec<(Hour, SegmentId)>> {
        self.database
            .removed_segments(before, limit)
            .await
            .map_err(of_store)
    }

    async fn forget(&self, ids: &[SegmentId]) -> Result<()> {
        self.database.forget_segments(ids).await.map_err(of_store)
    }
}
