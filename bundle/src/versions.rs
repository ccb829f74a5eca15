//! Code that changed while it was traced: the bytes at each address, and the position in each
//! thread's trace from which they hold.
//!
//! Each process has one file. All numbers are little-endian:
//!
//! ```text
//! 0    8    magic: "BTCODE", 0, format version 1
//! 8    4    F, the number of fragments
//! 12   4    T, the number of threads that pass boundaries
//! 16   16 F fragments, by boundary: address (8), boundary (4), size (4)
//!      ...  T threads, by id: thread id (4), number of boundaries B (4),
//!           then B boundaries, by offset: trace offset (8), boundary (4)
//!      ...  the bytes of the fragments, one after the other, to the end of the file
//! ```

use crate::manifest::Process;
use crate::{BundlePath, Error, Result, SharedBytes};
use backtrail_pt::{Avma, Tid};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

const MAGIC: &[u8; 8] = b"BTCODE\0\x01";
/// The size of a fragment's entry in bytes.
const FRAGMENT_SIZE: u64 = 16;
/// The size of a boundary's entry in bytes.
const BOUNDARY_SIZE: u64 = 12;

/// The versions of a process's code, which cover its modules and raw images.
///
/// A boundary is a point in time when code of the process changed, numbered from 1. In the trace of
/// each thread, it is a position where tracing is off. A thread sees the fragments whose boundary
/// it has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeVersions {
    /// The code in the order in which it appeared. If two fragments overlap, the one with the
    /// higher boundary covers the other. With the same boundary, the later one does.
    pub fragments: Vec<Fragment>,
    /// The boundaries that each thread passes, ascending by number and offset.
    pub boundaries: BTreeMap<Tid, Vec<Boundary>>,
}

/// Code bytes that were executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The first address.
    pub address: Avma,
    /// The boundary from which the fragment holds; 0 means from the beginning.
    pub boundary: u32,
    /// The code, 1 to [`Fragment::MAX_SIZE`] bytes.
    pub bytes: SharedBytes,
}

impl Fragment {
    /// The largest size of a fragment.
    pub const MAX_SIZE: usize = 4096;
}

/// The position where a thread passes a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The offset in the thread's trace: after the preceding TIP.PGD, and not after the following
    /// TIP.PGE. 0 if the trace begins later.
    pub offset: u64,
    /// The boundary's number.
    pub number: u32,
}

impl CodeVersions {
    /// Encodes the file. Fragments are sorted by boundary.
    ///
    /// # Errors
    /// Fails if a reader would refuse the file.
    pub(crate) fn encode(&self, place: impl Display) -> Result<Vec<u8>> {
        let mut fragments: Vec<&Fragment> = self.fragments.iter().collect();
        fragments.sort_by_key(|fragment| fragment.boundary);
        let mut out = MAGIC.to_vec();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(&count(fragments.len())?);
        put(&count(self.boundaries.len())?);
        for fragment in &fragments {
            put(&fragment.address.0.to_le_bytes());
            put(&fragment.boundary.to_le_bytes());
            put(&count(fragment.bytes.len())?);
        }
        for (tid, boundaries) in &self.boundaries {
            put(&tid.0.to_le_bytes());
            put(&count(boundaries.len())?);
            for boundary in boundaries {
                put(&boundary.offset.to_le_bytes());
                put(&boundary.number.to_le_bytes());
            }
        }
        fragments.iter().for_each(|fragment| put(&fragment.bytes));
        let bytes = SharedBytes::from(out);
        Self::parse(&bytes, place)?;
        Ok(bytes.to_vec())
    }

    /// Parses a file. `place` names it in errors.
    pub(crate) fn parse(bytes: &SharedBytes, place: impl Display) -> Result<Self> {
        let mut cursor = Cursor {
            bytes,
            at: 0,
            place: &place,
        };
        if cursor.take(8)?.as_ref() != MAGIC {
            return Err(cursor.refuse("this is not a code versions file, or it has another format version"));
        }
        let fragments = cursor.number()?;
        let threads = cursor.number()?;
        let entries = (0..cursor.checked_count(fragments, FRAGMENT_SIZE)?)
            .map(|_| Ok((Avma(cursor.long()?), cursor.number()?, cursor.number()?)))
            .collect::<Result<Vec<_>>>()?;
        let mut boundaries = BTreeMap::new();
        for _ in 0..threads {
            let tid = Tid(cursor.number()?);
            if boundaries.last_key_value().is_some_and(|(&last, _)| tid <= last) {
                return Err(cursor.refuse("the threads are not in order of their ids"));
            }
            boundaries.insert(tid, cursor.boundaries()?);
        }
        let fragments = cursor.fragments(entries)?;
        if cursor.at != bytes.len() as u64 {
            return Err(cursor.refuse("there are bytes after the last fragment"));
        }
        Ok(Self {
            fragments,
            boundaries,
        })
    }

    /// Reads the versions of `process` from the file that it names. `open` opens files of the
    /// bundle.
    pub(crate) fn load(process: &Process, open: impl Fn(&BundlePath) -> Result<SharedBytes>) -> Result<Self> {
        let Some(path) = &process.versions else {
            return Ok(Self::default());
        };
        let versions = Self::parse(&open(path)?, path)?;
        let traces = process.threads.iter();
        let traces: HashMap<Tid, &BundlePath> = traces
            .filter_map(|thread| Some((thread.tid, thread.trace.as_ref()?)))
            .collect();
        for (tid, boundaries) in &versions.boundaries {
            let Some(trace) = traces.get(tid) else {
                let problem = format!("thread {tid} of process {} has no trace", process.pid);
                return Err(Error::malformed(path, problem));
            };
            let size = open(trace)?.len() as u64;
            if let Some(last) = boundaries.last().filter(|last| last.offset > size) {
                let problem = format!(
                    "a boundary of thread {tid} is at {:#x} of its trace, which has {size:#x} bytes",
                    last.offset
                );
                return Err(Error::malformed(path, problem));
            }
        }
        Ok(versions)
    }
}

fn count(number: usize) -> Result<[u8; 4]> {
    u32::try_from(number)
        .map(u32::to_le_bytes)
        .map_err(|_| Error::Usage(format!("a code versions file cannot hold {number} entries")))
}

/// The unread part of a file.
struct Cursor<'a> {
    bytes: &'a SharedBytes,
    at: u64,
    place: &'a dyn Display,
}

impl Cursor<'_> {
    fn refuse(&self, problem: impl ToString) -> Error {
        Error::malformed(self.place, problem)
    }

    fn take(&mut self, size: u64) -> Result<SharedBytes> {
        let end = self.at.saturating_add(size);
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        taken.ok_or_else(|| self.refuse("it is truncated"))
    }

    fn number(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        bytes
            .first_chunk()
            .map(|bytes| u32::from_le_bytes(*bytes))
            .ok_or_else(|| self.refuse("it is truncated"))
    }

    fn long(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        bytes
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .ok_or_else(|| self.refuse("it is truncated"))
    }

    /// Returns `count` if that many entries of `size` bytes fit into the rest of the file.
    fn checked_count(&self, count: u32, size: u64) -> Result<u32> {
        let left = (self.bytes.len() as u64).saturating_sub(self.at);
        if u64::from(count) * size > left {
            return Err(self.refuse(format!("it is too short for {count} entries")));
        }
        Ok(count)
    }

    fn boundaries(&mut self) -> Result<Vec<Boundary>> {
        let count = self.number()?;
        let mut found: Vec<Boundary> = Vec::new();
        for _ in 0..self.checked_count(count, BOUNDARY_SIZE)? {
            let boundary = Boundary {
                offset: self.long()?,
                number: self.number()?,
            };
            let back = |last: &Boundary| boundary.offset < last.offset || boundary.number < last.number;
            if found.last().is_some_and(back) {
                return Err(self.refuse("the boundaries of a thread are not in order"));
            }
            found.push(boundary);
        }
        Ok(found)
    }

    /// Reads the fragments of these entries: address, boundary, size.
    fn fragments(&mut self, entries: Vec<(Avma, u32, u32)>) -> Result<Vec<Fragment>> {
        let mut found: Vec<Fragment> = Vec::with_capacity(entries.len());
        for (address, boundary, size) in entries {
            if size == 0 || size as usize > Fragment::MAX_SIZE {
                let problem = format!("a fragment has 1 to {} bytes, not {size}", Fragment::MAX_SIZE);
                return Err(self.refuse(problem));
            }
            if address.0.checked_add(u64::from(size)).is_none() {
                return Err(self.refuse(format!(
                    "a fragment at {address} extends beyond the address space"
                )));
            }
            if found.last().is_some_and(|last| boundary < last.boundary) {
                return Err(self.refuse("the fragments are not in order of their boundaries"));
            }
            found.push(Fragment {
                address,
                boundary,
                bytes: self.take(u64::from(size))?,
            });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
