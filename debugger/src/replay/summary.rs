//! The summary of a replayed part, which stays when its accesses are dropped.

use super::kernel::KernelWrites;
use super::range::MemoryRange;
use super::run::AccessSink;
use super::sharing::MapChange;
use backtrail_semantics::Observer;

/// The number of low bits of an address within a line of memory.
const LINE_BITS: u32 = 6;
/// The number of low bits of an address within a word.
const WORD_BITS: u32 = 3;
/// The words of a line.
const LINE_WORDS: u64 = 1 << (LINE_BITS - WORD_BITS);
/// An access of more lines is one to any address.
const MAX_LINES: u64 = 1 << 16;
/// The most lines of a part. More are any address.
const MAX_SET: usize = 1 << 20;
/// The number of recent lines that are not added again.
const RECENT: usize = 256;

/// The words of memory that a part accesses.
#[derive(Debug)]
pub struct PartSummary {
    stored: WordSet,
    loaded: WordSet,
    /// The changes of the memory map.
    pub map_changes: Box<[(u64, MapChange)]>,
    /// Whether the whole part was replayed.
    pub is_complete: bool,
}

/// Words of eight bytes, by the lines of memory that have them.
#[derive(Debug, Default)]
struct WordSet {
    /// The lines in order.
    lines: Box<[u64]>,
    /// A bit for each word of each line.
    words: Box<[u8]>,
    /// Whether others may have been accessed, too.
    has_others: bool,
}

impl WordSet {
    fn touches(&self, range: MemoryRange) -> bool {
        if self.has_others {
            return true;
        }
        let words = WordRange::of(range.address, range.size);
        let at = self.lines.partition_point(|&line| line < words.first_line());
        let lines = self.lines.iter().zip(&self.words).skip(at);
        lines
            .take_while(|(line, _)| **line <= words.last_line())
            .any(|(line, known)| words.of_line(*line) & known != 0)
    }
}

/// The words that a range of memory touches, by number.
#[derive(Clone, Copy, Debug)]
struct WordRange {
    first: u64,
    last: u64,
}

impl WordRange {
    fn of(address: u64, size: u64) -> Self {
        let last = address.saturating_add(size.saturating_sub(1));
        Self {
            first: address >> WORD_BITS,
            last: last >> WORD_BITS,
        }
    }

    const fn first_line(self) -> u64 {
        self.first / LINE_WORDS
    }

    const fn last_line(self) -> u64 {
        self.last / LINE_WORDS
    }

    /// Returns the words in a line, a bit each. The line is not outside of the range.
    const fn of_line(self, line: u64) -> u8 {
        let mut words = u8::MAX;
        if line == self.first_line() {
            words &= u8::MAX << (self.first % LINE_WORDS);
        }
        if line == self.last_line() {
            words &= u8::MAX >> (LINE_WORDS - 1 - self.last % LINE_WORDS);
        }
        words
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

/// Words of memory on their way into a set.
#[derive(Debug)]
struct WordList {
    /// Lines with their words. A line may be there more than once.
    lines: Vec<(u64, u8)>,
    /// Recent lines by their low bits, with their places.
    recent: [(u64, usize); RECENT],
    has_others: bool,
}

/// No line has this number.
const NO_LINE: (u64, usize) = (u64::MAX, 0);

impl Default for WordList {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            recent: [NO_LINE; RECENT],
            has_others: false,
        }
    }
}

impl WordList {
    fn add(&mut self, address: u64, size: u64) {
        let words = WordRange::of(address, size);
        let (from, to) = (words.first_line(), words.last_line());
        if to - from > MAX_LINES {
            self.has_others = true;
            return;
        }
        for line in from..=to {
            self.add_line(line, words.of_line(line));
        }
    }

    fn add_line(&mut self, line: u64, words: u8) {
        let slot = line as usize % RECENT;
        if let Some(&(recent, at)) = self.recent.get(slot)
            && recent == line
            && let Some((_, known)) = self.lines.get_mut(at)
        {
            *known |= words;
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
        self.lines.push((line, words));
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

    fn into_set(mut self) -> WordSet {
        self.merge();
        let (lines, words): (Vec<u64>, Vec<u8>) = self.lines.into_iter().unzip();
        WordSet {
            lines: lines.into_boxed_slice(),
            words: words.into_boxed_slice(),
            has_others: self.has_others,
        }
    }
}

/// The words of memory that a replay has accessed so far.
#[derive(Debug, Default)]
pub struct AccessedWords {
    stored: WordList,
    loaded: WordList,
    map_changes: Vec<(u64, MapChange)>,
}

impl AccessedWords {
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

impl AccessSink for AccessedWords {
    type Observer<'a> = WordsOfInstruction<'a>;

    fn of(&mut self, _index: u64) -> WordsOfInstruction<'_> {
        WordsOfInstruction(self)
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
pub struct WordsOfInstruction<'a>(&'a mut AccessedWords);

impl Observer for WordsOfInstruction<'_> {
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
    fn summaries_have_the_words_of_all_accesses() {
        let mut words = AccessedWords::default();
        // The third line has the place of the first among the recent ones.
        for address in [0x1000, 0x103f, 0x1000 + (RECENT as u64) * 64, 0x1000] {
            words.of(1).stored(address, &[0; 2]);
        }
        words.of(2).loaded(0x9000, &[0; 64]);
        words.kernel(3, KernelWrites::Ranges(vec![(0x20000, 4096), (0x30000, 0)]));
        let summary = words.into_summary(true);
        for address in [0x1000, 0x1038, 0x1040, 0x5000, 0x20fff] {
            assert!(summary.may_write(range(address, 1)), "{address:#x}");
        }
        assert!(!summary.may_write(range(0x9000, 64)) && summary.may_access(range(0x9000, 64)));
        assert!(!summary.may_access(range(0x9040, 64)) && !summary.may_access(range(0x30000, 8)));
        // Other words of the same lines.
        assert!(!summary.may_write(range(0x1008, 0x30)) && !summary.may_write(range(0x1048, 0x38)));
        assert!(summary.may_write(range(0x1008, 0x31)) && summary.may_write(range(0x1008, 0x3000)));
        assert!(!summary.may_access_anywhere());
        assert_eq!(summary.stored.lines.len(), 3 + 64);
    }

    #[test]
    fn unknown_writes_may_be_anywhere() {
        let mut words = AccessedWords::default();
        words.kernel(3, KernelWrites::Anywhere);
        let summary = words.into_summary(true);
        assert!(summary.may_write(range(0x1000, 1)) && summary.may_access_anywhere());
        let mut words = AccessedWords::default();
        words.stored.add(0, 64 * (MAX_LINES + 2));
        assert!(words.into_summary(true).may_write(range(u64::MAX, 1)));
    }

    #[test]
    fn too_many_lines_may_be_anywhere() {
        let mut list = WordList::default();
        for line in 0..=MAX_SET as u64 {
            list.add(line * 64, 1);
        }
        let set = list.into_set();
        assert!(set.has_others && set.touches(range(u64::MAX, 1)));
    }
}
