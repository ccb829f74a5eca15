//! Searches a history for addresses, in the spans that have one.

use super::postings::{Postings, SPAN};
use super::{Flow, FlowPosition, History};
use crate::{BlockId, Canceled, PathIdx, PcSet, Watch};
use backtrail_pt::Avma;
use std::ops::Range;

impl History {
    /// Builds the search index, which the first search would build otherwise.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn prepare_searches(&self, watch: &Watch<'_>) -> Result<(), Canceled> {
        self.flow.index(watch)
    }

    /// Returns the first index at or after `from` whose address is in the set.
    ///
    /// The first search in a history builds the search index from all of it.
    #[must_use]
    pub fn next_at(&self, from: u64, pcs: &PcSet) -> Option<u64> {
        let search = Search::new(&self.flow, pcs)?;
        let position = self.flow.position(from)?;
        let span = position.execution / SPAN;
        let found = search.first(position, (span + 1) * SPAN);
        let found = found.or_else(|| {
            let span = search.next_span(span + 1)?;
            search.first(FlowPosition::begin_of(span * SPAN), (span + 1) * SPAN)
        })?;
        self.flow.index_of(found)
    }

    /// Returns the last index before `before` whose address is in the set.
    ///
    /// The first search in a history builds the search index from all of it.
    #[must_use]
    pub fn prev_at(&self, before: u64, pcs: &PcSet) -> Option<u64> {
        let search = Search::new(&self.flow, pcs)?;
        let last = before.min(self.len()).checked_sub(1)?;
        let mut end = self.flow.position(last)?;
        end.within += 1;
        let span = end.execution / SPAN;
        let found = search.last(span * SPAN, end);
        let found = found.or_else(|| {
            let span = search.prev_span(span)?;
            search.last(span * SPAN, FlowPosition::begin_of((span + 1) * SPAN))
        })?;
        self.flow.index_of(found)
    }

    /// Returns the addresses of the set that were executed, ascending.
    ///
    /// The first search in a history builds the search index from all of it.
    #[must_use]
    pub fn executed_in(&self, pcs: &PcSet) -> Vec<Avma> {
        let near = self.flow.postings().near(&self.flow.blocks, pcs);
        let instructions = near.flat_map(|id| self.block(id));
        let mut found: Vec<Avma> = instructions
            .map(|found| found.pc)
            .filter(|&pc| pcs.contains(pc))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the number of indices in the range whose address is in the set.
    ///
    /// The first search in a history builds the search index from all of it.
    #[must_use]
    pub fn count_at(&self, range: Range<u64>, pcs: &PcSet) -> u64 {
        let Some(search) = Search::new(&self.flow, pcs) else {
            return 0;
        };
        let end = range.end.min(self.len());
        let Some(start) = self.flow.position(range.start).filter(|_| range.start < end) else {
            return 0;
        };
        let all = FlowPosition::begin_of(self.flow.executions().len());
        let end = self.flow.position(end).unwrap_or(all);
        // The spans that lie fully in the range.
        let first = start.spans_begun();
        let spans = first..end.execution / SPAN;
        if spans.is_empty() {
            return search.count(start, end);
        }
        search.count(start, FlowPosition::begin_of(spans.start * SPAN))
            + search.count_spans(spans.clone())
            + search.count(FlowPosition::begin_of(spans.end * SPAN), end)
    }
}

impl FlowPosition {
    fn begin_of(execution: usize) -> Self {
        Self { execution, within: 0 }
    }

    /// Returns the number of spans that start before this position.
    fn spans_begun(self) -> usize {
        (self.execution + usize::from(self.within > 0)).div_ceil(SPAN)
    }
}

/// A search for a set of addresses in a history.
struct Search<'a> {
    flow: &'a Flow,
    postings: &'a Postings,
    pcs: &'a PcSet,
    /// The number of instructions in the set, by block.
    inside: Vec<u16>,
    /// The blocks with any instruction in the set.
    blocks: Vec<BlockId>,
}

impl<'a> Search<'a> {
    /// Prepares a search; `None`: the history has no address of the set.
    fn new(flow: &'a Flow, pcs: &'a PcSet) -> Option<Self> {
        if pcs.is_empty() {
            return None;
        }
        let postings = flow.postings();
        let mut inside = vec![0; flow.blocks.len()];
        let mut blocks = Vec::new();
        for id in postings.near(&flow.blocks, pcs) {
            let (Some(block), Some(inside)) = (flow.blocks.get(id), inside.get_mut(id.index())) else {
                continue;
            };
            if *inside == 0 {
                let is_inside = |offset: u16| pcs.contains(block.start + u64::from(offset));
                let code = flow.blocks.code(id).iter();
                *inside = code.filter(|code| is_inside(code.offset)).count() as u16;
                if *inside > 0 {
                    blocks.push(id);
                }
            }
        }
        (!blocks.is_empty()).then_some(Self {
            flow,
            postings,
            pcs,
            inside,
            blocks,
        })
    }

    fn inside(&self, block: BlockId) -> u64 {
        self.inside.get(block.index()).copied().unwrap_or(0).into()
    }

    /// Returns the first span at or after `from` with an address of the set.
    fn next_span(&self, from: usize) -> Option<usize> {
        let of_block = |&block: &BlockId| {
            let mut spans = self.postings.of(block).map(|(span, _)| span);
            spans.find(|&span| span >= from)
        };
        self.blocks.iter().filter_map(of_block).min()
    }

    /// Returns the last span before `before` with an address of the set.
    fn prev_span(&self, before: usize) -> Option<usize> {
        let of_block = |&block: &BlockId| {
            let spans = self.postings.of(block).map(|(span, _)| span);
            spans.take_while(|&span| span < before).last()
        };
        self.blocks.iter().filter_map(of_block).max()
    }

    /// Returns the first address of the set from a position on and before an execution.
    fn first(&self, from: FlowPosition, end: usize) -> Option<FlowPosition> {
        let mut skip = from.within;
        for execution in from.execution..end {
            let path = *self.flow.executions().get(execution)?;
            if self.has(path) {
                let count = self.flow.paths.count(path) as usize;
                if let Some(within) = (skip..count).find(|&within| self.hit(path, within)) {
                    return Some(FlowPosition { execution, within });
                }
            }
            skip = 0;
        }
        None
    }

    /// Returns the last address of the set from an execution on and before a position.
    fn last(&self, from: usize, end: FlowPosition) -> Option<FlowPosition> {
        let mut limit = end.within;
        for execution in (from..=end.execution).rev() {
            if let Some(&path) = self.flow.executions().get(execution)
                && self.has(path)
            {
                let limit = limit.min(self.flow.paths.count(path) as usize);
                if let Some(within) = (0..limit).rev().find(|&within| self.hit(path, within)) {
                    return Some(FlowPosition { execution, within });
                }
            }
            limit = usize::MAX;
        }
        None
    }

    /// Counts the addresses of the set from one position to another, one by one.
    fn count(&self, from: FlowPosition, end: FlowPosition) -> u64 {
        let mut found = 0;
        let mut skip = from.within;
        for execution in from.execution..=end.execution {
            let Some(&path) = self.flow.executions().get(execution) else {
                break;
            };
            let count = self.flow.paths.count(path) as usize;
            let limit = if execution == end.execution {
                end.within
            } else {
                count
            };
            found += if (skip, limit) == (0, count) {
                let parts = self.flow.paths.blocks(path).iter();
                parts.map(|&block| self.inside(block)).sum()
            } else {
                (skip..limit).filter(|&within| self.hit(path, within)).count() as u64
            };
            skip = 0;
        }
        found
    }

    /// Counts the addresses of the set in whole spans.
    fn count_spans(&self, wanted: Range<usize>) -> u64 {
        let of_block = |&block: &BlockId| {
            let spans = self.postings.of(block);
            let spans = spans.skip_while(|(span, _)| *span < wanted.start);
            let spans = spans.take_while(|(span, _)| *span < wanted.end);
            spans.map(|(_, executions)| executions).sum::<u64>() * self.inside(block)
        };
        self.blocks.iter().map(of_block).sum()
    }

    /// Returns whether a path has an address of the set.
    fn has(&self, path: PathIdx) -> bool {
        let mut parts = self.flow.paths.blocks(path).iter();
        parts.any(|&block| self.inside(block) > 0)
    }

    fn hit(&self, path: PathIdx, within: usize) -> bool {
        let found = self.flow.of_path(path, within);
        found.is_some_and(|found| self.pcs.contains(found.pc))
    }
}
