//! Builds the call forest while the history grows, on another thread.

use super::scheduler::ParallelError;
use super::segment_output::SegmentOutput;
use super::table_delta::{PathTableCursor, PathTableDelta, PathTables};
use crate::{Canceled, Forest, Functions, History, HistoryBuilder, Mark, Watch, forest};
use std::sync::Arc;

/// The additions to a history by a segment.
#[derive(Debug)]
pub(super) struct HistoryDelta {
    table_delta: PathTableDelta,
    /// The executed paths, in the buffer of the segment.
    executed: SegmentOutput,
    /// The marks in and before them.
    marks: Vec<Mark>,
    /// The number of instructions of the history so far.
    total: u64,
}

impl HistoryDelta {
    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        self.executed.memory() + size_of_val(&*self.marks)
    }
}

/// The part of a history that deltas have covered.
#[derive(Debug, Default)]
pub(super) struct DeltaCursor {
    tables: PathTableCursor,
    executed: usize,
    marks: usize,
}

impl DeltaCursor {
    /// Returns the additions since the last call, in the buffer `output`.
    pub fn next(&mut self, history: &HistoryBuilder, mut output: SegmentOutput) -> HistoryDelta {
        let (flow, marks) = history.so_far();
        output.rewrite(flow.executions().get(self.executed..).unwrap_or(&[]));
        self.executed += output.paths().len();
        // A mark after the last instruction may still change.
        let marks = marks.get(self.marks..).unwrap_or(&[]);
        let settled = marks.partition_point(|mark| mark.index < flow.len());
        let delta = HistoryDelta {
            table_delta: self.tables.take_delta(&flow.table()),
            executed: output,
            marks: marks.get(..settled).unwrap_or(&[]).to_vec(),
            total: flow.len(),
        };
        self.marks += delta.marks.len();
        delta
    }
}

/// A call forest under construction.
pub(super) struct ForestWorker<'a> {
    builder: forest::Builder<'a>,
    tables: PathTables,
    /// The marks not consumed yet.
    marks: Vec<Mark>,
    /// The number of marks consumed.
    consumed: usize,
}

impl<'a> ForestWorker<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            builder: forest::Builder::new(functions),
            tables: PathTables::default(),
            marks: Vec::new(),
            consumed: 0,
        }
    }

    /// Adds a delta to the forest. Returns the emptied buffer.
    pub fn grow(&mut self, delta: HistoryDelta, watch: &Watch<'_>) -> Result<SegmentOutput, ParallelError> {
        self.tables.apply(delta.table_delta);
        self.marks.extend(delta.marks);
        let silent = Watch {
            progress: &|_| {},
            ..*watch
        };
        let table = self.tables.paths();
        let consumed = self
            .builder
            .feed(delta.executed.paths(), table, &self.marks, delta.total, &silent)
            .map_err(|Canceled| ParallelError::Canceled)?;
        self.marks.drain(..consumed);
        self.consumed += consumed;
        let mut output = delta.executed;
        output.clear();
        Ok(output)
    }

    /// Returns the forest of a history, which is complete except for its last marks.
    pub fn finish(self, history: &History) -> Forest {
        let marks = history.marks().get(self.consumed..);
        self.builder
            .finish(Arc::clone(&history.flow), marks.unwrap_or(&[]))
    }
}
