//! In which spans of a history each block was executed, and how often: what a search skips by.

use super::Flow;
use crate::block::Blocks;
use crate::watch::Stage;
use crate::{Canceled, PcSet, Watch};

/// Executions of paths in a span, of which the last may have fewer. More make the lists shorter, and what is
/// to be gone through one by one longer.
pub(crate) const SPAN: usize = 4096;

/// Spans between two reports.
const REPORT_EVERY: usize = 64;

/// For each block of a history the spans that it was executed in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Postings {
    /// Where the list of each block begins in `lists`, and where the last ends.
    starts: Vec<usize>,
    /// For each span, ascending, two numbers: what it is more than the one before, and how often the block
    /// was executed in it; seven bits a byte, the lowest first, the highest bit where more follow.
    lists: Vec<u8>,
    /// The blocks by their first addresses.
    by_start: Vec<u32>,
    /// The most bytes that a block has.
    longest: u64,
}

/// A list under way.
#[derive(Clone, Default)]
struct List {
    bytes: Vec<u8>,
    /// The span that was appended last.
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
    /// Goes through all executions.
    ///
    /// # Errors
    /// When canceled.
    pub fn new(flow: &Flow, watch: &Watch<'_>) -> Result<Self, Canceled> {
        let (blocks, paths) = (&flow.blocks, &flow.paths);
        let mut lists = vec![List::default(); blocks.len()];
        let mut of_paths = Counts::new(paths.len());
        let mut of_blocks = Counts::new(blocks.len());
        for (span, executions) in flow.executions().chunks(SPAN).enumerate() {
            if span.is_multiple_of(REPORT_EVERY) {
                watch.report(Stage::Index, (span * SPAN) as u64, flow.executions().len() as u64)?;
            }
            for &path in executions {
                of_paths.add(path, 1);
            }
            of_paths.drain(|path, executions| {
                for &block in paths.parts(path) {
                    of_blocks.add(block, executions);
                }
            });
            of_blocks.drain(|block, executions| {
                if let Some(list) = lists.get_mut(block as usize) {
                    list.push(span, executions);
                }
            });
        }
        let ids = 0..blocks.len() as u32;
        let mut by_start: Vec<u32> = ids.clone().collect();
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

    /// The spans that a block was executed in, ascending, each with how often.
    pub fn of(&self, block: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let bounds = self.starts.get(block as usize..).unwrap_or(&[]);
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

    /// The blocks that may have an instruction in a set; some may come twice.
    pub fn near<'a>(&'a self, blocks: &'a Blocks, pcs: &'a PcSet) -> impl Iterator<Item = u32> + 'a {
        let of_ranges = pcs.ranges().iter().flat_map(move |range| {
            let first = self.below(blocks, range.start.0.saturating_sub(self.longest));
            let close = self
                .by_start
                .get(first..self.below(blocks, range.end.0))
                .unwrap_or(&[]);
            let reaches = |&id: &u32| range.start.0.saturating_sub(start(blocks, id)) < blocks.size(id);
            close.iter().copied().filter(reaches)
        });
        // Addresses wrap, and these blocks may.
        let last = self.below(blocks, u64::MAX - self.longest);
        of_ranges.chain(self.by_start.get(last..).unwrap_or(&[]).iter().copied())
    }

    /// How many blocks start before an address.
    fn below(&self, blocks: &Blocks, end: u64) -> usize {
        self.by_start.partition_point(|&id| start(blocks, id) < end)
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.lists) + size_of_val(&*self.by_start)
    }
}

fn start(blocks: &Blocks, id: u32) -> u64 {
    blocks.get(id).map_or(u64::MAX, |block| block.start.0)
}

/// Numbers by id, of which few are above 0 at a time.
struct Counts {
    counts: Vec<u64>,
    /// Which are.
    met: Vec<u32>,
}

impl Counts {
    fn new(ids: usize) -> Self {
        Self {
            counts: vec![0; ids],
            met: Vec::new(),
        }
    }

    #[inline]
    fn add(&mut self, id: u32, number: u64) {
        if let Some(count) = self.counts.get_mut(id as usize) {
            if *count == 0 {
                self.met.push(id);
            }
            *count += number;
        }
    }

    /// Hands over all that are above 0, and sets them to 0.
    fn drain(&mut self, mut each: impl FnMut(u32, u64)) {
        for id in self.met.drain(..) {
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
