//! The summary of a replayed segment, which stays when its accesses are dropped.

use super::accesses::{AccessKind, Accesses};
use super::range::MemoryRange;
use super::sharing::MapChange;
use backtrail_semantics::State;

/// The number of low bits of an address within a line of memory.
const LINE_BITS: u32 = 6;
/// An access of more lines is one to any address.
const MAX_LINES: u64 = 1 << 16;

/// The lines of memory that a segment accesses, and the registers at its ends.
#[derive(Debug)]
pub struct SegmentSummary {
    stored: LineSet,
    loaded: LineSet,
    /// The changes of the memory map.
    pub map_changes: Box<[(u64, MapChange)]>,
    /// Whether the whole segment was replayed.
    pub is_complete: bool,
    /// The registers at the beginning.
    pub start: State,
    /// The registers at the end of what was replayed.
    pub end: State,
}

/// The lines of memory that were accessed, in order.
#[derive(Debug, Default)]
struct LineSet {
    lines: Box<[u64]>,
    /// Whether others may have been accessed, too.
    has_others: bool,
}

impl LineSet {
    fn new(accesses: &Accesses, wanted: impl Fn(AccessKind) -> bool) -> Self {
        let mut lines = Vec::new();
        let mut has_others = false;
        for access in accesses.from(0).iter().filter(|access| wanted(access.kind)) {
            let last = access.address.saturating_add(access.size.saturating_sub(1));
            let (from, to) = (access.address >> LINE_BITS, last >> LINE_BITS);
            if access.kind == AccessKind::Anywhere || to - from > MAX_LINES {
                has_others = true;
                continue;
            }
            for line in from..=to {
                // Most accesses are of the same line as the last one.
                if lines.last() != Some(&line) {
                    lines.push(line);
                }
            }
        }
        lines.sort_unstable();
        lines.dedup();
        Self {
            lines: lines.into_boxed_slice(),
            has_others,
        }
    }

    fn touches(&self, range: MemoryRange) -> bool {
        let last = range.address.saturating_add(range.size.saturating_sub(1));
        let at = self
            .lines
            .partition_point(|&line| line < range.address >> LINE_BITS);
        self.has_others || self.lines.get(at).is_some_and(|&line| line <= last >> LINE_BITS)
    }
}

impl SegmentSummary {
    /// Summarizes a replayed segment.
    pub fn new(start: State, end: State, accesses: &Accesses, is_complete: bool) -> Self {
        let stores = |kind| kind != AccessKind::Load;
        let loads = |kind| matches!(kind, AccessKind::Load | AccessKind::Anywhere);
        Self {
            stored: LineSet::new(accesses, stores),
            loaded: LineSet::new(accesses, loads),
            map_changes: accesses.map_changes().into(),
            is_complete,
            start,
            end,
        }
    }

    /// Returns whether the segment may read or write unknown addresses.
    pub fn may_access_anywhere(&self) -> bool {
        self.stored.has_others || self.loaded.has_others
    }

    /// Returns whether the segment may read or write a range.
    pub fn may_access(&self, range: MemoryRange) -> bool {
        self.stored.touches(range) || self.loaded.touches(range)
    }
}
