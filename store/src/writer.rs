//! The writer: profiles become segments of the store.

use crate::blocking;
use crate::buffer::{Buffer, EncodedSegment};
use crate::catalog::Catalog;
use crate::clock::now;
use crate::origin::{Origin, Origins};
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
    /// [`Error::Object`] or [`Error::Catalog`] if the store fails. The buffer keeps its samples
    /// then. A future that is dropped before its end loses the buffer.
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
        check_duration(begin, &entries)?;
        self.catalog.commit(&entries, &[], now()).await?;
        Ok(entries)
    }
}

/// Checks that garbage collection cannot have removed files that were uploaded since `begin`.
pub(crate) fn check_duration(begin: Instant, entries: &[SegmentEntry]) -> Result<()> {
    let elapsed = begin.elapsed();
    match entries.first() {
        Some(entry) if elapsed > COMMIT_WITHIN => Err(Error::TooLate {
            segment: entry.id.to_string(),
            seconds: elapsed.as_secs(),
        }),
        _ => Ok(()),
    }
}
