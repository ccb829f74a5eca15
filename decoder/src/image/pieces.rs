//! Sections laid over one another.

use super::{Bytes, Section};
use backtrail_pt::Avma;
use std::collections::BTreeMap;
use std::fmt;

/// Bytes by address, put together from parts of sections.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    /// By start; they do not overlap.
    by_start: BTreeMap<u64, Piece>,
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

impl Pieces {
    /// Puts a section over what is there.
    pub fn add(&mut self, section: Section) {
        let Some((start, last)) = section.range() else {
            return;
        };
        self.cut(start.0, last.0);
        let piece = Piece {
            last: last.0,
            offset: 0,
            bytes: section.bytes,
        };
        self.by_start.insert(start.0, piece);
    }

    /// Frees `start..=last` of what lies there.
    fn cut(&mut self, start: u64, last: u64) {
        let overlapping: Vec<u64> = self.over(start, last).map(|(from, _)| from).collect();
        for from in overlapping {
            let Some(piece) = self.by_start.remove(&from) else {
                continue;
            };
            if piece.last > last {
                let skipped = (last - from + 1) as usize;
                let offset = piece.offset + skipped;
                self.by_start.insert(
                    last + 1,
                    Piece {
                        offset,
                        ..piece.clone()
                    },
                );
            }
            if from < start {
                self.by_start.insert(
                    from,
                    Piece {
                        last: start - 1,
                        ..piece
                    },
                );
            }
        }
    }

    /// The pieces that have an address of `start..=last`, the highest first.
    fn over(&self, start: u64, last: u64) -> impl Iterator<Item = (u64, &Piece)> {
        self.by_start
            .range(..=last)
            .rev()
            .take_while(move |(_, piece)| piece.last >= start)
            .map(|(&from, piece)| (from, piece))
    }

    /// Those pieces that have an address of `start..=last`.
    pub fn around(&self, start: Avma, last: Avma) -> Self {
        let found = self.over(start.0, last.0);
        Self {
            by_start: found.map(|(from, piece)| (from, piece.clone())).collect(),
        }
    }

    /// The stretches of addresses that have bytes, ascending, as (first, last) inclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (Avma, Avma)> + '_ {
        self.by_start
            .iter()
            .map(|(&first, piece)| (Avma(first), Avma(piece.last)))
    }

    /// No byte is in it.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Copies bytes from `at` on into `out`, as many as there are without a hole, and says how many.
    pub fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(from) = at.0.checked_add(done as u64) else {
                break;
            };
            let Some((&first, piece)) = self.by_start.range(..=from).next_back() else {
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
