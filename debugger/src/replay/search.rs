//! The search for the accesses of a thread to memory.

use super::accesses::{Access, AccessKind};
use super::{ExecutedPath, MemoryRange, ReplayGap, ThreadReplay};
use backtrail_decoder::{Stage, Watch};

/// The kinds of accesses that a search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFilter {
    /// Stores, and writes of the kernel.
    Writes,
    /// Loads.
    Reads,
    /// Both.
    All,
}

impl AccessFilter {
    fn includes(self, kind: AccessKind) -> bool {
        match self {
            Self::Writes => kind != AccessKind::Load,
            Self::Reads => kind == AccessKind::Load,
            Self::All => true,
        }
    }
}

/// An access that a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundAccess {
    /// The instruction.
    pub index: u64,
    /// The kind.
    pub kind: AccessKind,
    /// The memory.
    pub range: MemoryRange,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessSearch {
    /// The nearest access.
    pub found: Option<FoundAccess>,
    /// A place on the way at which anything may have been written unseen, the nearest.
    pub unknown: Option<u64>,
}

impl AccessSearch {
    fn passes_unknown(&mut self, index: u64) {
        self.unknown.get_or_insert(index);
    }
}

/// The accesses that a search finds.
#[derive(Clone, Copy, Debug)]
pub struct WantedAccesses<'a> {
    ranges: &'a [MemoryRange],
    filter: AccessFilter,
}

impl WantedAccesses<'_> {
    fn includes(&self, access: &Access) -> bool {
        let range = MemoryRange {
            address: access.address,
            size: access.size,
        };
        self.filter.includes(access.kind) && self.ranges.iter().any(|wanted| wanted.overlaps(range))
    }
}

impl ThreadReplay {
    /// Returns the last access to a range by an instruction from `limit` on and before `end`.
    ///
    /// # Errors
    /// Fails when canceled.
    pub fn previous_access(
        &self,
        path: &dyn ExecutedPath,
        (ranges, filter): (&[MemoryRange], AccessFilter),
        (limit, end): (u64, u64),
        watch: &Watch<'_>,
    ) -> Result<AccessSearch, ReplayGap> {
        let wanted = WantedAccesses { ranges, filter };
        let mut search = AccessSearch::default();
        let after = self.segments.partition_point(|segment| segment.start < end);
        let mut known_to = end;
        for number in (0..after).rev() {
            let Some(segment) = self.segments.get(number) else {
                break;
            };
            if known_to <= limit {
                return Ok(search);
            }
            report(watch, end, segment.start.max(limit), limit)?;
            let summary = self.summary_of(number, path, watch)?;
            if segment.end < known_to {
                search.passes_unknown(segment.end);
            }
            if !summary.is_complete || ranges.iter().any(|range| summary.may_access(*range)) {
                let accesses = self.accesses_of(number, path, watch)?;
                if accesses.reached < segment.end.min(known_to) {
                    search.passes_unknown(accesses.reached);
                }
                for access in accesses.before(end).iter().rev() {
                    if access.index < limit {
                        return Ok(search);
                    }
                    if access.kind == AccessKind::Anywhere {
                        search.passes_unknown(access.index);
                    } else if wanted.includes(access) {
                        search.found = Some(found(access));
                        return Ok(search);
                    }
                }
            }
            if number > 0 && segment.start > limit && !self.continues(number, path, watch)? {
                search.passes_unknown(segment.start);
            }
            known_to = segment.start;
        }
        if known_to > limit {
            search.passes_unknown(known_to);
        }
        Ok(search)
    }

    /// Returns the first access to a range by an instruction from `start` on and before `limit`.
    ///
    /// # Errors
    /// Fails when canceled.
    pub fn next_access(
        &self,
        path: &dyn ExecutedPath,
        (ranges, filter): (&[MemoryRange], AccessFilter),
        (start, limit): (u64, u64),
        watch: &Watch<'_>,
    ) -> Result<AccessSearch, ReplayGap> {
        let wanted = WantedAccesses { ranges, filter };
        let mut search = AccessSearch::default();
        let first = self.segments.partition_point(|segment| segment.end <= start);
        let mut known_to = start;
        for number in first..self.segments.len() {
            let Some(segment) = self.segments.get(number) else {
                break;
            };
            if known_to >= limit || segment.start >= limit {
                break;
            }
            report(watch, start, segment.start.max(start), limit)?;
            let summary = self.summary_of(number, path, watch)?;
            let is_gap =
                segment.start > known_to || segment.start > start && !self.continues(number, path, watch)?;
            if is_gap {
                search.passes_unknown(segment.start);
            }
            if !summary.is_complete || ranges.iter().any(|range| summary.may_access(*range)) {
                let accesses = self.accesses_of(number, path, watch)?;
                for access in accesses.from(start) {
                    if access.index >= limit {
                        return Ok(search);
                    }
                    if access.kind == AccessKind::Anywhere {
                        search.passes_unknown(access.index);
                    } else if wanted.includes(access) {
                        search.found = Some(found(access));
                        return Ok(search);
                    }
                }
                if accesses.reached < segment.end.min(limit) {
                    search.passes_unknown(accesses.reached.max(start));
                }
            }
            known_to = segment.end;
        }
        if known_to < limit {
            search.passes_unknown(known_to);
        }
        Ok(search)
    }
}

fn found(access: &Access) -> FoundAccess {
    FoundAccess {
        index: access.index,
        kind: access.kind,
        range: MemoryRange {
            address: access.address,
            size: access.size,
        },
    }
}

fn report(watch: &Watch<'_>, from: u64, at: u64, to: u64) -> Result<(), ReplayGap> {
    watch
        .report(Stage::Search, from.abs_diff(at), from.abs_diff(to).max(1))
        .map_err(|_| ReplayGap::Canceled)
}
