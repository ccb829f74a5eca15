//! The summary of a replayed part, which stays when its accesses are dropped.

use super::kernel::KernelWrites;
use super::range::MemoryRange;
use super::run::AccessSink;
use super::sharing::MapChange;
use backtrail_semantics::Observer;

/// The number of low bits of an address within a line of memory.
const LINE_BITS: u32 = 6;
/// An access of more lines is one to any address.
const MAX_LINES: u64 = 1 << 16;
/// The most lines of a part. More are any address.
const MAX_SET: usize = 1 << 20;
/// The number of recent lines that are not added again.
const RECENT: usize = 256;

/// The lines of memory that a part accesses.
#[derive(Debug)]
pub struct PartSummary {
    stored: LineSet,
    loaded: LineSet,
    /// The changes of the memory map.
    pub map_changes: Box<[(u64, MapChange)]>,
    /// Whether the whole part was replayed.
    pub is_complete: bool,
}

/// Lines of memory in order.
#[derive(Debug, Default)]
struct LineSet {
    lines: Box<[u64]>,
    /// Whether others may have been accessed, too.
    has_others: bool,
}

impl LineSet {
    fn touches(&self, range: MemoryRange) -> bool {
        let last = range.address.saturating_add(range.size.saturating_sub(1));
        let at = self
            .lines
            .partition_point(|&line| line < range.address >> LINE_BITS);
        self.has_others || self.lines.get(at).is_some_and(|&line| line <= last >> LINE_BITS)
    }
}

impl PartSummary {
    /// Returns whether the part may read or write unknown addresses.
    pub fn may_access_anywhere(&self) -> bool {
        self.stored.has_others || self.loaded.has_others
    }

    /// Returns whether the part may read or write a range.
    pub fn may_access(&self, range: MemoryRange) -> bool {
        self.may_write(range) || self.loaded.touches(range)
    }

    /// Returns whether the part may write a range.
    pub fn may_write(&self, range: MemoryRange) -> bool {
        self.stored.touches(range)
    }
}

/// Lines of memory on their way into a set.
#[derive(Debug)]
struct LineList {
    lines: Vec<u64>,
    /// Recent lines by their low bits.
    recent: [u64; RECENT],
    has_others: bool,
}

impl Default for LineList {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            // No line has this number.
            recent: [u64::MAX; RECENT],
            has_others: false,
        }
    }
}

impl LineList {
    fn add(&mut self, address: u64, size: u64) {
        let last = address.saturating_add(size.saturating_sub(1));
        let (from, to) = (address >> LINE_BITS, last >> LINE_BITS);
        if to - from > MAX_LINES {
            self.has_others = true;
            return;
        }
        for line in from..=to {
            let Some(recent) = self.recent.get_mut(line as usize % RECENT) else {
                continue;
            };
            if *recent != line {
                *recent = line;
                self.push(line);
            }
        }
    }

    fn push(&mut self, line: u64) {
        if self.lines.len() >= MAX_SET {
            self.lines.sort_unstable();
            self.lines.dedup();
            if self.lines.len() > MAX_SET / 2 {
                self.has_others = true;
                self.lines.clear();
            }
        }
        if !self.has_others {
            self.lines.push(line);
        }
    }

    fn into_set(mut self) -> LineSet {
        self.lines.sort_unstable();
        self.lines.dedup();
        LineSet {
            lines: self.lines.into_boxed_slice(),
            has_others: self.has_others,
        }
    }
}

/// The lines of memory that a replay has accessed so far.
#[derive(Debug, Default)]
pub struct AccessedLines {
    stored: LineList,
    loaded: LineList,
    map_changes: Vec<(u64, MapChange)>,
}

impl AccessedLines {
    /// Returns the summary of a part.
    pub fn into_summary(self, is_complete: bool) -> PartSummary {
        PartSummary {
            stored: self.stored.into_set(),
            loaded: self.loaded.into_set(),
            map_changes: self.map_changes.into(),
            is_complete,
        }
    }
}

impl AccessSink for AccessedLines {
    type Observer<'a> = LinesOfInstruction<'a>;

    fn of(&mut self, _index: u64) -> LinesOfInstruction<'_> {
        LinesOfInstruction(self)
    }

    fn kernel(&mut self, _index: u64, writes: KernelWrites) {
        match writes {
            KernelWrites::Ranges(ranges) => {
                for (address, size) in ranges.into_iter().filter(|(_, size)| *size > 0) {
                    self.stored.add(address, size);
                }
            }
            // The accesses have the addresses.
            KernelWrites::Clone { .. } | KernelWrites::Anywhere => self.stored.has_others = true,
        }
    }

    fn maps(&mut self, index: u64, change: MapChange) {
        self.map_changes.push((index, change));
    }
}

/// The receiver of the accesses of one instruction.
pub struct LinesOfInstruction<'a>(&'a mut AccessedLines);

impl Observer for LinesOfInstruction<'_> {
    fn loaded(&mut self, address: u64, bytes: &[u8]) {
        self.0.loaded.add(address, bytes.len() as u64);
    }

    fn stored(&mut self, address: u64, bytes: &[u8]) {
        self.0.stored.add(address, bytes.len() as u64);
    }

    fn stored_unknown(&mut self) {
        self.0.stored.has_others = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, size: u64) -> MemoryRange {
        MemoryRange { address, size }
    }

    #[test]
    fn summaries_have_the_lines_of_all_accesses() {
        let mut lines = AccessedLines::default();
        // The third line has the place of the first among the recent ones.
        for address in [0x1000, 0x103f, 0x1000 + (RECENT as u64) * 64, 0x1000] {
            lines.of(1).stored(address, &[0; 2]);
        }
        lines.of(2).loaded(0x9000, &[0; 64]);
        lines.kernel(3, KernelWrites::Ranges(vec![(0x20000, 4096), (0x30000, 0)]));
        let summary = lines.into_summary(true);
        for address in [0x1000, 0x1040, 0x5000, 0x20fff] {
            assert!(summary.may_write(range(address, 1)), "{address:#x}");
        }
        assert!(!summary.may_write(range(0x9000, 64)) && summary.may_access(range(0x9000, 64)));
        assert!(!summary.may_access(range(0x9040, 64)) && !summary.may_access(range(0x30000, 8)));
        assert!(!summary.may_access_anywhere());
        assert_eq!(summary.stored.lines.len(), 3 + 64);
    }

    #[test]
    fn unknown_writes_may_be_anywhere() {
        let mut lines = AccessedLines::default();
        lines.kernel(3, KernelWrites::Anywhere);
        let summary = lines.into_summary(true);
        assert!(summary.may_write(range(0x1000, 1)) && summary.may_access_anywhere());
        let mut lines = AccessedLines::default();
        lines.stored.add(0, 64 * (MAX_LINES + 2));
        assert!(lines.into_summary(true).may_write(range(u64::MAX, 1)));
    }

    #[test]
    fn too_many_lines_may_be_anywhere() {
        let mut list = LineList::default();
        for line in 0..=MAX_SET as u64 {
            list.add(line * 64, 1);
        }
        let set = list.into_set();
        assert!(set.has_others && set.touches(range(u64::MAX, 1)));
    }
}
