//! A map of addresses to bytes, from sections that cover each other.

use super::{Bytes, Section};
use backtrail_pt::Avma;
use std::collections::BTreeMap;
use std::fmt;

/// Bytes by address, from parts of sections.
#[derive(Clone, Debug, Default)]
pub(super) struct SectionMap {
    /// The parts by start; they do not overlap.
    by_start: BTreeMap<u64, SectionPart>,
}

/// A part of a section that no later one covers.
#[derive(Clone)]
struct SectionPart {
    /// The last address (inclusive, so that it can be 2^64 - 1).
    last: u64,
    /// The start of the part in `bytes`.
    offset: usize,
    bytes: Bytes,
}

impl fmt::Debug for SectionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "..={:#x}", self.last)
    }
}

impl SectionMap {
    /// Puts a section over the existing parts.
    pub fn add(&mut self, section: Section) {
        let Some((start, last)) = section.range() else {
            return;
        };
        self.cut(start.0, last.0);
        let part = SectionPart {
            last: last.0,
            offset: 0,
            bytes: section.bytes,
        };
        self.by_start.insert(start.0, part);
    }

    /// Removes the bytes from one address to another.
    pub fn remove(&mut self, first: Avma, last: Avma) {
        self.cut(first.0, last.0);
    }

    /// Removes `start..=last` from the existing parts.
    fn cut(&mut self, start: u64, last: u64) {
        let overlapping: Vec<u64> = self.over(start, last).map(|(from, _)| from).collect();
        for from in overlapping {
            let Some(part) = self.by_start.remove(&from) else {
                continue;
            };
            if part.last > last {
                let skipped = (last - from + 1) as usize;
                let offset = part.offset + skipped;
                self.by_start.insert(
                    last + 1,
                    SectionPart {
                        offset,
                        ..part.clone()
                    },
                );
            }
            if from < start {
                self.by_start.insert(
                    from,
                    SectionPart {
                        last: start - 1,
                        ..part
                    },
                );
            }
        }
    }

    /// Returns the parts with an address in `start..=last`, the highest first.
    fn over(&self, start: u64, last: u64) -> impl Iterator<Item = (u64, &SectionPart)> {
        self.by_start
            .range(..=last)
            .rev()
            .take_while(move |(_, part)| part.last >= start)
            .map(|(&from, part)| (from, part))
    }

    /// Returns a map of the parts with an address in `start..=last`.
    pub fn around(&self, start: Avma, last: Avma) -> Self {
        let found = self.over(start.0, last.0);
        Self {
            by_start: found.map(|(from, part)| (from, part.clone())).collect(),
        }
    }

    /// Returns the address ranges with bytes, ascending, as (first, last) inclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (Avma, Avma)> + '_ {
        self.by_start
            .iter()
            .map(|(&first, part)| (Avma(first), Avma(part.last)))
    }

    /// Returns the number of parts.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Copies bytes from `at` on into `out`, up to the first hole, and returns how many.
    pub fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(from) = at.0.checked_add(done as u64) else {
                break;
            };
            let Some((&first, part)) = self.by_start.range(..=from).next_back() else {
                break;
            };
            if part.last < from {
                break;
            }
            let skip = (from - first) as usize;
            let here = (part.last - from).saturating_add(1).min(rest.len() as u64) as usize;
            let begin = part.offset + skip;
            let Some(bytes) = (*part.bytes).as_ref().get(begin..begin + here) else {
                break;
            };
            rest[..here].copy_from_slice(bytes);
            done += here;
        }
        done
    }
}
