//! Where the packets of a stream are kept.

use crate::recorded::Packets;
use crate::ring::Ring;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

/// How much is kept, and where.
#[derive(Debug)]
pub(crate) enum Keep {
    /// The newest bytes, about this many, in memory.
    Newest(usize),
    /// All, in a file that is there already.
    All(PathBuf),
}

impl Keep {
    /// Bytes of packets that are stored together: a ring's oldest go together, too.
    pub(super) fn segment(&self) -> usize {
        /// In general.
        const SEGMENT: usize = 64 << 10;
        /// A ring has so many at least.
        const PER_RING: usize = 64;
        match self {
            Self::Newest(limit) => (limit / PER_RING).min(SEGMENT),
            Self::All(_) => SEGMENT,
        }
    }
}

/// Packets, kept.
pub(super) enum Store {
    Ring(Ring),
    File {
        path: PathBuf,
        len: u64,
        failure: Option<io::Error>,
    },
}

impl Store {
    pub(super) fn new(keep: Keep) -> Self {
        match keep {
            Keep::Newest(limit) => Self::Ring(Ring::new(Some(limit))),
            Keep::All(path) => Self::File {
                path,
                len: 0,
                failure: None,
            },
        }
    }

    /// Keeps packets, which begin with PSB.
    pub(super) fn push(&mut self, packets: Vec<u8>) {
        match self {
            Self::Ring(ring) => ring.push(packets),
            Self::File { path, len, failure } => {
                if failure.is_none() {
                    // No thread keeps a descriptor: there may be more threads than descriptors.
                    let file = OpenOptions::new().append(true).open(&*path);
                    match file.and_then(|mut file| file.write_all(&packets)) {
                        Ok(()) => *len += packets.len() as u64,
                        Err(error) => *failure = Some(error),
                    }
                }
            }
        }
    }

    /// The packets, how many bytes were dropped, and why some could not be written.
    pub(super) fn finish(self) -> (Packets, u64, Option<io::Error>) {
        match self {
            Self::Ring(ring) => {
                let dropped = ring.dropped();
                (Packets::Kept(ring.into_bytes()), dropped, None)
            }
            Self::File { len, failure, .. } => (Packets::Filed(len), 0, failure),
        }
    }
}
