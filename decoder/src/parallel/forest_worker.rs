//! Builds the call forest while the history grows, on another thread.

use super::error::ParallelError;
use super::history_delta::HistoryDelta;
use super::segment_output::SegmentOutput;
use super::table_delta::PathTables;
use crate::{Canceled, Forest, Functions, History, Mark, Watch, forest};
use std::sync::Arc;

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
