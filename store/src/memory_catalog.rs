//! A catalog in memory, for tests and for stores of one process.

use crate::catalog::{Catalog, Listing, SegmentState};
use crate::hour::Hour;
use crate::segment::{SegmentEntry, SegmentId};
use crate::{Error, Result};
use async_trait::async_trait;
use backtrail_profile::UnixNanos;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Entries = BTreeMap<SegmentId, (SegmentEntry, SegmentState)>;

/// A catalog in memory.
#[derive(Debug, Default)]
pub struct MemoryCatalog {
    entries: Mutex<Entries>,
}

impl MemoryCatalog {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // No method leaves the map in a state between two.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Catalog for MemoryCatalog {
    async fn commit(&self, add: &[SegmentEntry], remove: &[SegmentId], at: UnixNanos) -> Result<()> {
        let mut entries = self.entries();
        let state = |id: &SegmentId| entries.get(id).map(|(_, state)| *state);
        let conflict = |id: &SegmentId| Error::Conflict {
            segment: id.to_string(),
        };
        if let Some(id) = remove.iter().find(|id| state(id) != Some(SegmentState::Live)) {
            return Err(conflict(id));
        }
        if let Some(entry) = add.iter().find(|entry| state(&entry.id).is_some()) {
            return Err(conflict(&entry.id));
        }
        for id in remove {
            if let Some((_, state)) = entries.get_mut(id) {
                *state = SegmentState::Removed { at };
            }
        }
        let live = |entry: &SegmentEntry| (entry.id, (entry.clone(), SegmentState::Live));
        entries.extend(add.iter().map(live));
        Ok(())
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<SegmentEntry>> {
        let entries = self.entries();
        let is_listed = |(entry, state): &&(SegmentEntry, SegmentState)| {
            *state == SegmentState::Live
                && listing.hours.contains(&entry.hour)
                && match (&listing.services, &entry.services) {
                    (Some(wanted), Some(services)) => wanted.iter().any(|name| services.contains(name)),
                    _ => true,
                }
        };
        let listed = entries.values().filter(is_listed);
        Ok(listed.map(|(entry, _)| entry.clone()).collect())
    }

    async fn states(&self, ids: &[SegmentId]) -> Result<Vec<Option<SegmentState>>> {
        let entries = self.entries();
        let state = |id| entries.get(id).map(|(_, state)| *state);
        Ok(ids.iter().map(state).collect())
    }

    async fn removed(&self, before: UnixNanos, limit: usize) -> Result<Vec<(Hour, SegmentId)>> {
        let entries = self.entries();
        let removed = entries.values().filter_map(|(entry, state)| match state {
            SegmentState::Removed { at } if *at < before => Some((entry.hour, entry.id)),
            _ => None,
        });
        Ok(removed.take(limit).collect())
    }

    async fn forget(&self, ids: &[SegmentId]) -> Result<()> {
        let mut entries = self.entries();
        for id in ids {
            if entries
                .get(id)
                .is_some_and(|(_, state)| *state != SegmentState::Live)
            {
                entries.remove(id);
            }
        }
        Ok(())
    }
}
