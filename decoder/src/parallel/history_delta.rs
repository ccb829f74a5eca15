//! The growth of a history, for a call forest on another thread.

use super::segment_output::SegmentOutput;
use super::table_delta::{PathTableCursor, PathTableDelta};
use crate::{HistoryBuilder, Mark};

/// The additions to a history by a segment.
#[derive(Debug)]
pub(super) struct HistoryDelta {
    pub table_delta: PathTableDelta,
    /// The executed paths, in the buffer of the segment.
    pub executed: SegmentOutput,
    /// The marks in and before them.
    pub marks: Vec<Mark>,
    /// The number of instructions of the history so far.
    pub total: u64,
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
