//! The search index: the spans of a history in which each block was executed, and how often.

use crate::block::Blocks;
use crate::path::Paths;
use crate::watch::Stage;
use crate::{BlockId, Canceled, PathIdx, PcSet, Watch};

/// Path executions per span; the last span may have fewer. Longer spans make lists shorter, but a
/// search within a span longer.
pub(crate) const SPAN: usize = 4096;

/// Spans between two progress reports.
const REPORT_EVERY: usize = 64;

/// The spans in which each block was executed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Postings {
    /// The start of each block's list in `lists`, and the end of the last.
    starts: Vec<usize>,
    /// For each span, ascending: the difference to the previous span, and the number of executions.
    /// Numbers are LEB128: seven bits per byte, the lowest first.
    lists: Vec<u8>,
    /// The blocks by start address.
    by_start: Vec<BlockId>,
    /// The longest block in bytes.
    longest: u64,
}

/// A list under construction.
#[derive(Clone, Default)]
struct List {
    bytes: Vec<u8>,
    /// The last span appended.
    last: usize,
}

impl List {
    fn push(&mut self, span: usize, executions: u64) {
        put(&mut self.bytes, (span - self.last) as u64);
        put(&mut self.bytes, executions);
        self.last = span;
    }
}

impl Postings {
    /// Builds the index from all executions.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn new(
        blocks: &Blocks,
        paths: &Paths,
        executions: &[PathIdx],
        watch: &Watch<'_>,
    ) -> Result<Self, Canceled> {
        let total = executions.len() as u64;
        let mut lists = vec![List::default(); blocks.len()];
        let mut of_paths = Counts::new(paths.len());
        let mut of_blocks = Counts::new(blocks.len());
        for (span, executed) in executions.chunks(SPAN).enumerate() {
            if span.is_multiple_of(REPORT_EVERY) {
                watch.report(Stage::Index, (span * SPAN) as u64, total)?;
            }
            for &path in executed {
                of_paths.add(path.0, 1);
            }
            of_paths.drain(|path, executions| {
                for &block in paths.blocks(PathIdx(path)) {
                    of_blocks.add(block.0, executions);
                }
            });
            of_blocks.drain(|block, executions| {
                if let Some(list) = lists.get_mut(block as usize) {
                    list.push(span, executions);
                }
            });
        }
        let ids = (0..blocks.len() as u32).map(BlockId);
        let mut by_start: Vec<BlockId> = ids.clone().collect();
        by_start.sort_unstable_by_key(|&id| start(blocks, id));
        let mut postings = Self {
            starts: Vec::with_capacity(lists.len() + 1),
            lists: Vec::with_capacity(lists.iter().map(|list| list.bytes.len()).sum()),
            by_start,
            longest: ids.map(|id| blocks.size(id)).max().unwrap_or(0),
        };
        postings.starts.push(0);
        for list in lists {
            postings.lists.extend(list.bytes);
            postings.starts.push(postings.lists.len());
        }
        Ok(postings)
    }

    /// Returns the spans of a block, ascending, each with the number of executions.
    pub fn of(&self, block: BlockId) -> impl Iterator<Item = (usize, u64)> + '_ {
        let bounds = self.starts.get(block.index()..).unwrap_or(&[]);
        let list = match *bounds {
            [start, end, ..] => self.lists.get(start..end).unwrap_or(&[]),
            _ => &[],
        };
        let mut bytes = list.iter();
        let mut span = 0;
        std::iter::from_fn(move || {
            span += take(&mut bytes)? as usize;
            Some((span, take(&mut bytes)?))
        })
    }

    /// Returns the blocks that may have an instruction in a set; some may appear twice.
    pub fn near<'a>(&'a self, blocks: &'a Blocks, pcs: &'a PcSet) -> impl Iterator<Item = BlockId> + 'a {
        let of_ranges = pcs.ranges().iter().flat_map(move |range| {
            let first = self.below(blocks, range.start.0.saturating_sub(self.longest));
            let close = self
                .by_start
                .get(first..self.below(blocks, range.end.0))
                .unwrap_or(&[]);
            let reaches = |&id: &BlockId| range.start.0.saturating_sub(start(blocks, id)) < blocks.size(id);
            close.iter().copied().filter(reaches)
        });
        // Blocks at the end of the address space may wrap.
        let last = self.below(blocks, u64::MAX - self.longest);
        of_ranges.chain(self.by_start.get(last..).unwrap_or(&[]).iter().copied())
    }

    /// Returns the number of blocks that start before an address.
    fn below(&self, blocks: &Blocks, end: u64) -> usize {
        self.by_start.partition_point(|&id| start(blocks, id) < end)
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.lists) + size_of_val(&*self.by_start)
    }
}

fn start(blocks: &Blocks, block: BlockId) -> u64 {
    blocks.get(block).map_or(u64::MAX, |block| block.start.0)
}

/// Counts by id, of which few are above 0 at a time.
struct Counts {
    counts: Vec<u64>,
    /// The ids with a count above 0.
    nonzero: Vec<u32>,
}

impl Counts {
    fn new(ids: usize) -> Self {
        Self {
            counts: vec![0; ids],
            nonzero: Vec::new(),
        }
    }

    #[inline]
    fn add(&mut self, id: u32, number: u64) {
        if let Some(count) = self.counts.get_mut(id as usize) {
            if *count == 0 {
                self.nonzero.push(id);
            }
            *count += number;
        }
    }

    /// Visits all counts above 0, and resets them.
    fn drain(&mut self, mut each: impl FnMut(u32, u64)) {
        for id in self.nonzero.drain(..) {
            if let Some(count) = self.counts.get_mut(id as usize) {
                each(id, std::mem::take(count));
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u64> {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let byte = *bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX];
        let mut bytes = Vec::new();
        for number in numbers {
            put(&mut bytes, number);
        }
        let mut rest = bytes.iter();
        for number in numbers {
            assert_eq!(take(&mut rest), Some(number));
        }
        assert_eq!(take(&mut rest), None);
    }
}
