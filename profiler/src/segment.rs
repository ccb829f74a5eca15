//! The file of a recording: a bounded ring of segments, or one file of a spool after the other.
//!
//! A block is written in one piece, so that a kill loses at most the samples since the last one.
//! When a ring has reached its limit, a new segment begins at its start and replaces the oldest
//! ones. In a spool, each segment is a file.

use crate::options::RecordingOutput;
use crate::spool::Spool;
use crate::{Error, Result};
use backtrail_profile::UnixNanos;
use backtrail_profile::format::recording::{HEADER, SegmentEncoder};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A segment has at least this part of the limit, so that little is lost when it is replaced.
const PARTS: u64 = 16;
/// The most blocks of a segment.
const MAX_BLOCKS: u32 = 64;

/// The file that blocks are written to.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    file: File,
    max_bytes: u64,
    position: u64,
    written: u64,
    segment_start: u64,
    segments: u32,
    segment: SegmentEncoder,
    spool: Option<Spool>,
}

impl RecordingFile {
    /// Creates the first file of an output, for a recording that starts at a time.
    ///
    /// # Errors
    ///
    /// Those of [`RecordingFile::create`], and [`Error::Output`] if the spool cannot be used.
    pub fn open(output: &RecordingOutput, start: UnixNanos) -> Result<Self> {
        match output {
            RecordingOutput::File {
                path,
                overwrite,
                max_bytes,
            } => Self::create(path, *overwrite, *max_bytes, start),
            RecordingOutput::Spool(options) => {
                let mut spool = Spool::open(options)?;
                let path = spool.begin(start)?;
                let mut file = Self::create(&path, true, u64::MAX, start)?;
                file.spool = Some(spool);
                Ok(file)
            }
        }
    }

    /// Creates the file of a recording that starts at a time. It stays below `max_bytes`, apart
    /// from one block.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if the file exists and is not to be replaced, or cannot be created.
    pub fn create(path: &Path, overwrite: bool, max_bytes: u64, start: UnixNanos) -> Result<Self> {
        let output = |error| Error::Output {
            path: path.to_owned(),
            error,
        };
        if overwrite && path.is_file() {
            fs::remove_file(path).map_err(output)?;
        }
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(output)?;
        file.write_all_at(&HEADER, 0).map_err(output)?;
        let position = HEADER.len() as u64;
        Ok(Self {
            path: path.to_owned(),
            file,
            max_bytes,
            position,
            written: position,
            segment_start: position,
            segments: 1,
            segment: SegmentEncoder::new(0, start),
            spool: None,
        })
    }

    /// Returns the segment that samples are added to, and its number, which changes when a new one
    /// begins.
    pub fn segment(&mut self) -> (&mut SegmentEncoder, u32) {
        (&mut self.segment, self.segments)
    }

    /// Writes a block with the samples since the last one. `end` is the time until which they are
    /// complete, and `lost` the number of records that the kernel dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if the file cannot be written.
    pub fn write_block(&mut self, end: UnixNanos, lost: u64) -> Result<()> {
        let block = self.segment.finish_block(end, lost)?;
        self.write(&block).map_err(|error| Error::Output {
            path: self.path.clone(),
            error,
        })?;
        let is_due = self.spool.as_ref().is_some_and(|spool| spool.is_due(end));
        if is_due {
            return self.begin_file(end);
        }
        let is_full = self.position >= self.max_bytes;
        let segment_bytes = self.position - self.segment_start;
        if is_full || self.segment.blocks() >= MAX_BLOCKS || segment_bytes >= self.max_bytes / PARTS {
            if is_full {
                self.position = HEADER.len() as u64;
            }
            self.begin_segment(end);
        }
        Ok(())
    }

    fn begin_segment(&mut self, start: UnixNanos) {
        self.segment_start = self.position;
        self.segment = SegmentEncoder::new(self.segments, start);
        self.segments += 1;
    }

    /// Completes the file of the spool, and begins the next one.
    fn begin_file(&mut self, start: UnixNanos) -> Result<()> {
        let Some(spool) = &mut self.spool else {
            return Ok(());
        };
        spool.complete(&self.path)?;
        let path = spool.begin(start)?;
        let next = Self::create(&path, true, u64::MAX, start)?;
        (self.path, self.file, self.position) = (next.path, next.file, next.position);
        self.written += next.written;
        self.begin_segment(start);
        Ok(())
    }

    /// Completes the last file of a spool, or removes it if it has no block. A ring is always
    /// complete.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if the file cannot be renamed.
    pub fn complete(&mut self) -> Result<()> {
        match &mut self.spool {
            Some(_) if self.position == HEADER.len() as u64 => {
                fs::remove_file(&self.path).map_err(|error| Error::Output {
                    path: self.path.clone(),
                    error,
                })
            }
            Some(spool) => spool.complete(&self.path),
            None => Ok(()),
        }
    }

    /// Returns the number of files that were removed to keep the spool below its limit.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::removed)
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.file.write_all_at(block, self.position)?;
        self.position += block.len() as u64;
        self.written += block.len() as u64;
        Ok(())
    }

    /// Returns the number of bytes that were written, replaced ones included.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::{Frame, StackId, format::recording};

    fn add(file: &mut RecordingFile, address: u64) {
        let (segment, _) = file.segment();
        let profile = &mut segment.profile;
        let event = profile.event("cpu", "nanoseconds", 10).unwrap();
        let frame = profile.frames.intern(Frame::Address(address)).unwrap();
        let stack = profile.stacks.push(StackId::EMPTY, frame).unwrap();
        profile.add(event, 10, stack).unwrap();
    }

    #[test]
    fn file_is_a_bounded_ring() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        let max = 20_000;
        let mut file = RecordingFile::create(&path, false, max, UnixNanos(0)).unwrap();
        for block in 0..2000u64 {
            for sample in 0..10 {
                add(&mut file, block * 10 + sample);
            }
            file.write_block(UnixNanos(block * 1_000_000_000), 0).unwrap();
            let size = fs::metadata(&path).unwrap().len();
            assert!(size < max + 1000, "{size}");
        }
        let profile = recording::read(&fs::read(&path).unwrap()).unwrap();
        let newest: Vec<_> = profile.frames.iter().map(|(_, frame)| *frame).collect();
        assert_eq!(newest.last(), Some(&Frame::Address(19_999)));
        // Only the part that is being replaced is missing.
        let expected = max / (file.written() / 2000) * 10;
        assert!(
            profile.samples.len() as u64 > expected * 8 / 10,
            "{} {expected}",
            profile.samples.len()
        );
        // The samples are the newest ones, without gaps.
        let first = 20_000 - profile.samples.len() as u64;
        assert_eq!(newest[0], Frame::Address(first));
    }

    #[test]
    fn existing_file_is_only_replaced_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "other").unwrap();
        let create = |overwrite| RecordingFile::create(&path, overwrite, 1 << 20, UnixNanos(0));
        assert!(matches!(create(false), Err(Error::Output { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"other");
        create(true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), HEADER);
    }
}
