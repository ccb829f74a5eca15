//! The summary of a replayed part, which stays when its accesses are dropped.

use super::kernel::KernelWrites;
use super::range::MemoryRange;
use super::run::AccessSink;
use super::sharing::MapChange;
use backtrail_semantics::Observer;

/// The number of low bits of an address within a line of memory.
const LINE_BITS: u32 = 6;
/// The bytes of a line.
const LINE_BYTES: u64 = 1 << LINE_BITS;
/// An access of more lines is one to any address.
const MAX_LINES: u64 = 1 << 16;
/// The most lines of a part. More are any address.
const MAX_SET: usize = 1 << 20;
/// The number of recent lines that are not added again.
const RECENT: usize = 256;

/// The bytes of memory that a part accesses.
#[derive(Debug)]
pub struct PartSummary {
    stored: ByteSet,
    loaded: ByteSet,
    /// The changes of the memory map.
    pub map_changes: Box<[(u64, MapChange)]>,
    /// Whether the whole part was replayed.
    pub is_complete: bool,
}

/// Bytes, by the lines of memory that have them.
#[derive(Debug, Default)]
struct ByteSet {
    /// The lines in order.
    lines: Box<[u64]>,
    /// A bit for each byte of each line.
    bytes: Box<[u64]>,
    /// Whether others may have been accessed, too.
    has_others: bool,
}

impl ByteSet {
    fn touches(&self, range: MemoryRange) -> bool {
        if self.has_others {
            return true;
        }
        let wanted = ByteRange::of(range.address, range.size);
        let at = self.lines.partition_point(|&line| line < wanted.first_line());
        let lines = self.lines.iter().zip(&self.bytes).skip(at);
        lines
            .take_while(|(line, _)| **line <= wanted.last_line())
            .any(|(line, known)| wanted.of_line(*line) & known != 0)
    }
}

/// The bytes of a range of memory.
#[derive(Clone, Copy, Debug)]
struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    fn of(address: u64, size: u64) -> Self {
        Self {
            first: address,
            last: address.saturating_add(size.saturating_sub(1)),
        }
    }

    const fn first_line(self) -> u64 {
        self.first >> LINE_BITS
    }

    const fn last_line(self) -> u64 {
        self.last >> LINE_BITS
    }

    /// Returns the bytes in a line, a bit each. The line is not outside of the range.
    const fn of_line(self, line: u64) -> u64 {
        let mut bytes = u64::MAX;
        if line == self.first_line() {
            bytes &= u64::MAX << (self.first % LINE_BYTES);
        }
        if line == self.last_line() {
            bytes &= u64::MAX >> (LINE_BYTES - 1 - self.last % LINE_BYTES);
        }
        bytes
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

/// Bytes of memory on their way into a set.
#[derive(Debug)]
struct ByteList {
    /// Lines with their bytes. A line may be there more than once.
    lines: Vec<(u64, u64)>,
    /// Recent lines by their low bits, with their places.
    recent: [(u64, usize); RECENT],
    has_others: bool,
}

/// No line has this number.
const NO_LINE: (u64, usize) = (u64::MAX, 0);

impl Default for ByteList {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            recent: [NO_LINE; RECENT],
            has_others: false,
        }
    }
}

impl ByteList {
    fn add(&mut self, address: u64, size: u64) {
        let added = ByteRange::of(address, size);
        let (from, to) = (added.first_line(), added.last_line());
        if to - from > MAX_LINES {
            self.has_others = true;
            return;
        }
        for line in from..=to {
            self.add_line(line, added.of_line(line));
        }
    }

    fn add_line(&mut self, line: u64, bytes: u64) {
        let slot = line as usize % RECENT;
        if let Some(&(recent, at)) = self.recent.get(slot)
            && recent == line
            && let Some((_, known)) = self.lines.get_mut(at)
        {
            *known |= bytes;
            return;
        }
        if self.lines.len() >= MAX_SET {
            self.merge();
            if self.lines.len() > MAX_SET / 2 {
                self.has_others = true;
                self.lines.clear();
            }
        }
        if self.has_others {
            return;
        }
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = (line, self.lines.len());
        }
        self.lines.push((line, bytes));
    }

    /// Sorts the lines, so that each is there once.
    fn merge(&mut self) {
        self.recent = [NO_LINE; RECENT];
        self.lines.sort_unstable();
        self.lines.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.1 |= later.1;
            }
            is_same
        });
    }

    fn into_set(mut self) -> ByteSet {
        self.merge();
        let (lines, bytes): (Vec<u64>, Vec<u64>) = self.lines.into_iter().unzip();
        ByteSet {
            lines: lines.into_boxed_slice(),
            bytes: bytes.into_boxed_slice(),
            has_others: self.has_others,
        }
    }
}

/// The bytes of memory that a replay has accessed so far.
#[derive(Debug, Default)]
pub struct AccessedBytes {
    stored: ByteList,
    loaded: ByteList,
    map_changes: Vec<(u64, MapChange)>,
}

impl AccessedBytes {
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

impl AccessSink for AccessedBytes {
    type Observer<'a> = BytesOfInstruction<'a>;

    fn of(&mut self, _index: u64) -> BytesOfInstruction<'_> {
        BytesOfInstruction(self)
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
pub struct BytesOfInstruction<'a>(&'a mut AccessedBytes);

impl Observer for BytesOfInstruction<'_> {
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
    fn summaries_have_the_bytes_of_all_accesses() {
        let mut bytes = AccessedBytes::default();
        // The third line has the place of the first among the recent ones.
        for address in [0x1000, 0x103f, 0x1000 + (RECENT as u64) * 64, 0x1000] {
            bytes.of(1).stored(address, &[0; 2]);
        }
        bytes.of(2).loaded(0x9000, &[0; 64]);
        bytes.kernel(3, KernelWrites::Ranges(vec![(0x20000, 4096), (0x30000, 0)]));
        let summary = bytes.into_summary(true);
        for address in [0x1000, 0x1001, 0x103f, 0x1040, 0x5000, 0x20fff] {
            assert!(summary.may_write(range(address, 1)), "{address:#x}");
        }
        assert!(!summary.may_write(range(0x9000, 64)) && summary.may_access(range(0x9000, 64)));
        assert!(!summary.may_access(range(0x9040, 64)) && !summary.may_access(range(0x30000, 8)));
        // Other bytes of the same lines.
        assert!(!summary.may_write(range(0x1002, 0x3d)) && !summary.may_write(range(0x1041, 0x3f)));
        assert!(summary.may_write(range(0x1002, 0x3e)) && summary.may_write(range(0x1002, 0x4000)));
        assert!(!summary.may_access_anywhere());
        assert_eq!(summary.stored.lines.len(), 3 + 64);
    }

    #[test]
    fn unknown_writes_may_be_anywhere() {
        let mut bytes = AccessedBytes::default();
        bytes.kernel(3, KernelWrites::Anywhere);
        let summary = bytes.into_summary(true);
        assert!(summary.may_write(range(0x1000, 1)) && summary.may_access_anywhere());
        let mut bytes = AccessedBytes::default();
        bytes.stored.add(0, 64 * (MAX_LINES + 2));
        assert!(bytes.into_summary(true).may_write(range(u64::MAX, 1)));
    }

    #[test]
    fn too_many_lines_may_be_anywhere() {
        let mut list = ByteList::default();
        for line in 0..=MAX_SET as u64 {
            list.add(line * 64, 1);
        }
        let set = list.into_set();
        assert!(set.has_others && set.touches(range(u64::MAX, 1)));
    }
}
