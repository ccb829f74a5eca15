//! Storage for the packets of a stream.

use crate::recorded::Packets;
use crate::ring::Ring;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

/// The amount and the place of packet storage.
#[derive(Debug)]
pub(crate) enum PacketStorage {
    /// About this many of the newest bytes, in memory.
    Newest(usize),
    /// All bytes, in an existing file.
    File(PathBuf),
}

impl PacketStorage {
    /// Returns the size of a segment. A ring drops whole segments.
    pub(super) fn segment(&self) -> usize {
        /// The maximum segment size.
        const SEGMENT: usize = 64 << 10;
        /// The minimum number of segments in a ring.
        const PER_RING: usize = 64;
        match self {
            Self::Newest(limit) => (limit / PER_RING).min(SEGMENT),
            Self::File(_) => SEGMENT,
        }
    }
}

/// The stored packets.
pub(super) enum PacketStore {
    Ring(Ring),
    File {
        path: PathBuf,
        len: u64,
        failure: Option<io::Error>,
    },
}

impl PacketStore {
    pub(super) fn new(storage: PacketStorage) -> Self {
        match storage {
            PacketStorage::Newest(limit) => Self::Ring(Ring::new(Some(limit))),
            PacketStorage::File(path) => Self::File {
                path,
                len: 0,
                failure: None,
            },
        }
    }

    /// Stores a segment that begins with a PSB.
    pub(super) fn push(&mut self, packets: Vec<u8>) {
        match self {
            Self::Ring(ring) => ring.push(packets),
            Self::File { path, len, failure } => {
                if failure.is_none() {
                    // The file is not kept open, because there may be more threads than file
                    // descriptors.
                    let file = OpenOptions::new().append(true).open(&*path);
                    match file.and_then(|mut file| file.write_all(&packets)) {
                        Ok(()) => *len += packets.len() as u64,
                        Err(error) => *failure = Some(error),
                    }
                }
            }
        }
    }

    /// Returns the packets, the number of dropped bytes, and the error if a write failed.
    pub(super) fn finish(self) -> (Packets, u64, Option<io::Error>) {
        match self {
            Self::Ring(ring) => {
                let dropped = ring.dropped();
                (Packets::InMemory(ring.into_bytes()), dropped, None)
            }
            Self::File { len, failure, .. } => (Packets::InFile(len), 0, failure),
        }
    }
}
