//! Merges the output of the segments of a trace, in order.

use super::error::ParallelError;
use super::history_delta::{DeltaCursor, HistoryDelta};
use super::segment_output::{DecodedSegment, SegmentOutput};
use super::table_delta::PathTables;
use crate::engine::native::{SegmentResult, TimestampResolver};
use crate::{History, HistoryBuilder};

/// A history under construction, from the output of several engines.
pub(super) struct HistoryMerger {
    builder: HistoryBuilder,
    /// The tables of each engine.
    tables: Vec<PathTables>,
    resolver: TimestampResolver,
    /// The result of the last segment.
    last: Option<SegmentResult>,
    /// The part covered by deltas, if a forest is wanted.
    cursor: Option<DeltaCursor>,
}

/// The result of merging a segment.
pub(super) enum MergedSegment {
    /// The delta for the forest.
    Delta(HistoryDelta),
    /// The emptied buffer, if no forest is wanted.
    Buffer(SegmentOutput),
}

impl HistoryMerger {
    /// Starts a history; `followed`: a forest is wanted.
    pub fn new(builder: HistoryBuilder, resolver: TimestampResolver, followed: bool) -> Self {
        Self {
            builder,
            tables: Vec::new(),
            resolver,
            last: None,
            cursor: followed.then(DeltaCursor::default),
        }
    }

    /// Adds the next segment to the history.
    pub fn merge(&mut self, done: DecodedSegment) -> Result<MergedSegment, ParallelError> {
        let DecodedSegment {
            engine,
            mut output,
            result,
            to,
        } = done;
        if self
            .last
            .as_ref()
            .is_some_and(|last| !last.is_continued_by(&result))
        {
            return Err(ParallelError::Discontinuous);
        }
        self.last = Some(result);
        let times = self
            .resolver
            .resolve(&output.log, to)
            .ok_or(ParallelError::Discontinuous)?;
        if self.tables.len() <= engine {
            self.tables.resize_with(engine + 1, PathTables::default);
        }
        if let Some(tables) = self.tables.get_mut(engine) {
            self.builder.select_engine(engine);
            output.replay(tables, times, &mut self.builder);
        }
        Ok(match &mut self.cursor {
            Some(cursor) => MergedSegment::Delta(cursor.next(&self.builder, output)),
            None => {
                output.clear();
                MergedSegment::Buffer(output)
            }
        })
    }

    /// Returns the history.
    pub fn finish(self) -> History {
        self.builder.finish()
    }
}
