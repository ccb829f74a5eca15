//! Garbage: files of segments that were removed, or that were never committed.

use crate::segment::{SegmentId, TableKind};
use crate::store::Store;
use crate::writer::COMMIT_WITHIN;
use crate::{Error, Result};
use backtrail_profile::UnixNanos;
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStoreExt};
use std::time::Duration;

/// The files or segments that are processed at once.
const CHUNK: usize = 1000;

/// The files that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// The segments that the catalog does not know any more.
    pub segments: u64,
    /// The files of segments that were never committed.
    pub files: u64,
    /// The bytes of those files.
    pub bytes: u64,
}

impl Store {
    /// The shortest grace time: twice as long as an upload may take.
    pub const MIN_GRACE: Duration = Duration::from_secs(COMMIT_WITHIN.as_secs() * 2);

    /// Deletes the files of segments that were removed longer than a grace time ago, and files
    /// without a row that are older. Queries that last longer than the grace time may fail.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the grace time is below [`Store::MIN_GRACE`], [`Error::Object`] and
    /// [`Error::Catalog`] if the store fails. A later call deletes the rest.
    pub async fn collect_garbage(&self, now: UnixNanos, grace: Duration) -> Result<Garbage> {
        let before = limit(now, grace)?;
        let mut garbage = Garbage::default();
        loop {
            let removed = self.catalog.removed(before, CHUNK).await?;
            if removed.is_empty() {
                break;
            }
            for (hour, id) in &removed {
                for kind in TableKind::ALL {
                    self.delete(&kind.key(*hour, *id)).await?;
                }
            }
            let ids: Vec<SegmentId> = removed.iter().map(|(_, id)| *id).collect();
            self.catalog.forget(&ids).await?;
            garbage.segments += ids.len() as u64;
        }
        for file in self.orphans(before).await? {
            self.delete(file.location.as_ref()).await?;
            garbage.files += 1;
            garbage.bytes += file.size;
        }
        Ok(garbage)
    }

    /// Returns the keys of the files that belong to no segment and are older than a grace time.
    ///
    /// # Errors
    ///
    /// As [`Store::collect_garbage`].
    pub async fn garbage(&self, now: UnixNanos, grace: Duration) -> Result<Vec<String>> {
        let files = self.orphans(limit(now, grace)?).await?;
        Ok(files.into_iter().map(|file| file.location.to_string()).collect())
    }

    /// Returns the files that the catalog does not know, and that were written before a time.
    async fn orphans(&self, before: UnixNanos) -> Result<Vec<ObjectMeta>> {
        let mut orphans = Vec::new();
        for kind in TableKind::ALL {
            let folder = Key::from(format!("kind={}", kind.name()));
            let files = self.reader.objects().list(Some(&folder));
            let mut chunks = files.try_chunks(CHUNK);
            loop {
                let failed = |error| Error::object(folder.as_ref(), error);
                let Some(files) = chunks.try_next().await.map_err(|error| failed(error.1))? else {
                    break;
                };
                let parsed = files.into_iter().filter_map(|file| {
                    let (_, _, id) = TableKind::parse_key(file.location.as_ref())?;
                    let nanos = file.last_modified.timestamp_nanos_opt()?;
                    (u64::try_from(nanos).ok()? < before.0).then_some((file, id))
                });
                let (files, ids): (Vec<_>, Vec<_>) = parsed.unzip();
                let states = self.catalog.states(&ids).await?;
                let unknown = files.into_iter().zip(states);
                orphans.extend(unknown.filter(|(_, state)| state.is_none()).map(|(file, _)| file));
            }
        }
        Ok(orphans)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        match self.reader.objects().delete(&Key::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::object(key, error)),
        }
    }
}

/// Returns the time before which files are garbage.
fn limit(now: UnixNanos, grace: Duration) -> Result<UnixNanos> {
    if grace < Store::MIN_GRACE {
        return Err(Error::Invalid(format!(
            "a grace time of {} s is too short, because an upload may take {} s; use at least {} s",
            grace.as_secs(),
            COMMIT_WITHIN.as_secs(),
            Store::MIN_GRACE.as_secs()
        )));
    }
    let grace = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
    Ok(UnixNanos(now.0.saturating_sub(grace)))
}
