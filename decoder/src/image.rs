//! The code bytes of one process, assembled from sections of files and of memory.

use backtrail_pt::Avma;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Shared bytes, however they are kept: a mapped file, a vector.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes that were in a process from `start` on.
#[derive(Clone)]
pub struct Section {
    /// Where the first byte was.
    pub start: Avma,
    /// The bytes; what would lie beyond 2^64 is not used.
    pub bytes: Bytes,
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Section {{ {:#x} + {:#x} }}",
            self.start,
            (*self.bytes).as_ref().len()
        )
    }
}

/// What an engine reads code from.
pub trait Memory {
    /// Copies bytes from `at` on into `out`, as many as there are without a hole, and says how many.
    fn read(&self, at: Avma, out: &mut [u8]) -> usize;
}

/// The code of one process: sections, of which a later one covers what it overlaps of an earlier.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// By start; they do not overlap.
    pieces: BTreeMap<u64, Piece>,
}

/// A part of a section that is not covered by a later one.
#[derive(Clone)]
struct Piece {
    /// The last address (inclusive, so that 2^64 - 1 can be in it).
    last: u64,
    /// Where the piece begins in `bytes`.
    offset: usize,
    bytes: Bytes,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "..={:#x}", self.last)
    }
}

impl Image {
    /// An image without code.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a section over what is there.
    pub fn add(&mut self, section: Section) {
        let len = (*section.bytes).as_ref().len();
        let start = section.start.0;
        let Some(reach) = (len as u64).checked_sub(1) else {
            return;
        };
        let last = start.saturating_add(reach);
        self.cut(start, last);
        self.pieces.insert(
            start,
            Piece {
                last,
                offset: 0,
                bytes: section.bytes,
            },
        );
    }

    /// Frees `start..=last` of what lies there.
    fn cut(&mut self, start: u64, last: u64) {
        let overlapping: Vec<u64> = self
            .pieces
            .range(..=last)
            .rev()
            .take_while(|(_, piece)| piece.last >= start)
            .map(|(&from, _)| from)
            .collect();
        for from in overlapping {
            let Some(piece) = self.pieces.remove(&from) else {
                continue;
            };
            if piece.last > last {
                let skipped = (last - from + 1) as usize;
                let offset = piece.offset + skipped;
                self.pieces.insert(
                    last + 1,
                    Piece {
                        offset,
                        ..piece.clone()
                    },
                );
            }
            if from < start {
                self.pieces.insert(
                    from,
                    Piece {
                        last: start - 1,
                        ..piece
                    },
                );
            }
        }
    }

    /// The stretches of addresses that have bytes, ascending, as (first, last) inclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (Avma, Avma)> + '_ {
        self.pieces
            .iter()
            .map(|(&first, piece)| (Avma(first), Avma(piece.last)))
    }

    /// No byte is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Copies bytes from `at` on into `out`, as many as there are without a hole, and says how many.
    pub fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(from) = at.0.checked_add(done as u64) else {
                break;
            };
            let Some((&first, piece)) = self.pieces.range(..=from).next_back() else {
                break;
            };
            if piece.last < from {
                break;
            }
            let skip = (from - first) as usize;
            let here = (piece.last - from).saturating_add(1).min(rest.len() as u64) as usize;
            let begin = piece.offset + skip;
            let Some(bytes) = (*piece.bytes).as_ref().get(begin..begin + here) else {
                break;
            };
            rest[..here].copy_from_slice(bytes);
            done += here;
        }
        done
    }
}

impl Memory for Image {
    fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        Image::read(self, at, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(start: u64, bytes: &[u8]) -> Section {
        Section {
            start: Avma(start),
            bytes: Arc::new(bytes.to_vec()),
        }
    }

    fn read(image: &Image, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let got = image.read(Avma(at), &mut out);
        out.truncate(got);
        out
    }

    #[test]
    fn later_sections_cover_earlier_ones() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2, 3, 4, 5, 6]));
        image.add(section(0x1002, &[9, 8]));
        assert_eq!(read(&image, 0x1000, 16), [1, 2, 9, 8, 5, 6]);
        image.add(section(0xfff, &[7, 7]));
        assert_eq!(read(&image, 0xfff, 16), [7, 7, 2, 9, 8, 5, 6]);
        image.add(section(0x0f00, &[0; 0x200]));
        assert_eq!(read(&image, 0x1003, 1), [0]);
    }

    #[test]
    fn a_hole_ends_the_read_and_the_top_of_memory_is_reached() {
        let mut image = Image::new();
        image.add(section(0x1000, &[1, 2]));
        image.add(section(0x1003, &[3]));
        assert_eq!(read(&image, 0x1000, 4), [1, 2]);
        assert_eq!(read(&image, 0x1002, 4), [0u8; 0]);
        image.add(section(u64::MAX - 1, &[5, 6, 7, 8]));
        assert_eq!(read(&image, u64::MAX - 1, 8), [5, 6]);
        image.add(section(5, &[]));
        assert_eq!(read(&image, 5, 1), [0u8; 0]);
    }
}
