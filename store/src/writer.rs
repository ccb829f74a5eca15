//! The writer: profiles become segments of the store.

use crate::blocking;
use crate::buffer::{Buffer, EncodedSegment};
use crate::catalog::Catalog;
use crate::clock::now;
use crate::idle_counts::IdleCounts;
use crate::origin::{Origin, Origins};
use crate::push_hashes::PushHash;
use crate::segment::{SegmentEntry, TableKind};
use crate::upload::Upload;
use crate::{Error, Result};
use backtrail_profile::{Profile, UnixNanos};
use object_store::ObjectStore;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time within which an upload must be committed. Garbage collection keeps files without a row
/// for at least twice as long.
pub(crate) const COMMIT_WITHIN: Duration = Duration::from_secs(1800);

/// The limits of a [`Writer`]'s buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterLimits {
    /// The number of samples after which the buffer is full.
    pub rows: usize,
    /// The bytes of memory after which the buffer is full.
    pub bytes: usize,
}

/// A million samples, or 128 MiB.
impl Default for WriterLimits {
    fn default() -> Self {
        Self {
            rows: 1 << 20,
            bytes: 128 << 20,
        }
    }
}

/// A writer of segments. Several writers may use one store at once.
///
/// Samples belong to the store after [`Writer::flush`] returned. A buffer that was not flushed is
/// lost with the process.
pub struct Writer {
    objects: Arc<dyn ObjectStore>,
    catalog: Arc<dyn Catalog>,
    limits: WriterLimits,
    /// The longest time of a flush.
    commit_within: Duration,
    buffer: Buffer,
}

impl Writer {
    /// Builds a writer with an empty buffer.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, catalog: Arc<dyn Catalog>, limits: WriterLimits) -> Self {
        Self {
            objects,
            catalog,
            limits,
            commit_within: COMMIT_WITHIN,
            buffer: Buffer::default(),
        }
    }

    /// Adds the samples of a profile to the buffer, with the labels of its sender. A sample without
    /// a time gets the profile's start, or `received` if that is unknown.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the profile cannot be stored. The buffer is as before then.
    pub fn add(
        &mut self,
        origin: &Origin,
        labels: &[(String, String)],
        profile: &Profile,
        received: UnixNanos,
    ) -> Result<()> {
        self.buffer.add(Origins::one(origin), labels, profile, received)
    }

    /// Adds the samples of a profile whose samples have several origins, as that of a whole host.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the profile cannot be stored, or a sample has no origin. The buffer is
    /// as before then.
    pub fn add_with_origins(
        &mut self,
        origins: Origins<'_>,
        labels: &[(String, String)],
        profile: &Profile,
        received: UnixNanos,
    ) -> Result<()> {
        self.buffer.add(origins, labels, profile, received)
    }

    /// Counts samples of idle threads that were left out. The last hour of the next flush has them.
    pub fn add_idle(&mut self, counts: &IdleCounts) {
        self.buffer.add_idle(counts);
    }

    /// Adds the hash of a push whose samples were added. The last hour of the next flush has it, so
    /// that a push that is sent again is known without the catalog.
    pub fn add_push(&mut self, hash: PushHash, received: UnixNanos) {
        self.buffer.add_push(hash, received);
    }

    /// Returns the number of samples in the buffer.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.buffer.rows()
    }

    /// Returns whether the buffer should be flushed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.buffer.rows() >= self.limits.rows || self.buffer.bytes() >= self.limits.bytes
    }

    /// Adds the samples of a profile, and flushes a full buffer. Returns the new segments.
    ///
    /// # Errors
    ///
    /// As [`Writer::add`] and [`Writer::flush`].
    pub async fn write(
        &mut self,
        origin: &Origin,
        profile: &Profile,
        received: UnixNanos,
    ) -> Result<Vec<SegmentEntry>> {
        self.add(origin, &[], profile, received)?;
        match self.is_full() {
            true => self.flush().await,
            false => Ok(Vec::new()),
        }
    }

    /// Writes the buffer as one segment for each hour, and commits them at once. Returns them.
    ///
    /// # Errors
    ///
    /// [`Error::Object`] or [`Error::Catalog`] if the store fails, and [`Error::TooLate`] if it is
    /// too slow. The buffer keeps its samples then. A future that is dropped before its end loses
    /// the buffer.
    pub async fn flush(&mut self) -> Result<Vec<SegmentEntry>> {
        if self.buffer.rows() == 0 {
            return Ok(Vec::new());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let work = move || {
            let segments = buffer.encode();
            Ok((buffer, segments))
        };
        let (buffer, segments) = blocking::run(work).await?;
        let written = match segments {
            Ok(segments) => self.commit(segments).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            self.buffer = buffer;
        }
        written
    }

    /// Uploads segments and adds them to the catalog.
    async fn commit(&self, segments: Vec<EncodedSegment>) -> Result<Vec<SegmentEntry>> {
        let begin = Instant::now();
        let mut entries = Vec::with_capacity(segments.len());
        for mut segment in segments {
            for kind in TableKind::ALL {
                let mut upload = Upload::new(Arc::clone(&self.objects), segment.entry.key(kind));
                if let Err(error) = upload.write(segment.files.take(kind)).await {
                    upload.abort().await;
                    return Err(error);
                }
                upload.finish().await?;
            }
            entries.push(segment.entry);
        }
        check_duration(begin.elapsed(), self.commit_within, &entries)?;
        self.catalog.commit(&entries, &[], now()).await?;
        Ok(entries)
    }
}

/// Checks that garbage collection cannot have removed files that were uploaded in this time.
pub(crate) fn check_duration(elapsed: Duration, limit: Duration, entries: &[SegmentEntry]) -> Result<()> {
    match entries.first() {
        Some(entry) if elapsed > limit => Err(Error::TooLate {
            segment: entry.id.to_string(),
            seconds: elapsed.as_secs(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Listing;
    use crate::hour::Hour;
    use crate::memory_catalog::MemoryCatalog;
    use backtrail_profile::StackId;
    use object_store::memory::InMemory;

    /// Returns the number of samples that a catalog has.
    async fn committed(catalog: &MemoryCatalog) -> u64 {
        let listing = Listing {
            hours: Hour(0)..Hour(u32::MAX),
            services: None,
        };
        let entries = catalog.list(&listing).await.unwrap();
        entries.iter().map(|entry| entry.samples.rows).sum()
    }

    #[tokio::test]
    async fn flush_beyond_its_time_commits_nothing_and_can_be_repeated() {
        let catalog = Arc::new(MemoryCatalog::default());
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let mut writer = Writer::new(objects, catalog.clone(), WriterLimits::default());
        let mut profile = Profile::default();
        let event = profile.event("cpu", "nanoseconds", 0).unwrap();
        profile.add(event, 7, StackId::EMPTY).unwrap();
        let received = UnixNanos(7_200_000_000_000);
        writer.add(&Origin::default(), &[], &profile, received).unwrap();
        writer.commit_within = Duration::ZERO;
        let error = writer.flush().await.unwrap_err();
        assert!(matches!(error, Error::TooLate { seconds: 0, .. }), "{error}");
        assert!(error.to_string().contains("write it again"));
        assert_eq!((writer.rows(), committed(&catalog).await), (1, 0));
        writer.commit_within = COMMIT_WITHIN;
        let entries = writer.flush().await.unwrap();
        assert_eq!((writer.rows(), entries.len()), (0, 1));
        assert_eq!(committed(&catalog).await, 1);
        // The limit itself is in time.
        let late = COMMIT_WITHIN + Duration::from_nanos(1);
        check_duration(COMMIT_WITHIN, COMMIT_WITHIN, &entries).unwrap();
        assert!(check_duration(late, COMMIT_WITHIN, &entries).is_err());
    }
}
