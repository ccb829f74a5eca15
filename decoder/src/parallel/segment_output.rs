//! Buffers the output of an engine for one segment, to be replayed on another thread.

use super::table_delta::{PathTableDelta, PathTables};
use crate::engine::native::{ResolvedTimestamps, SegmentResult, TimingLog};
use crate::{Event, HistoryBuilder, PathIdx, PathTable, Sink};
use backtrail_pt::{Avma, Cofi};
use std::cell::RefCell;
use std::ops::ControlFlow;

/// A decoded segment.
pub(super) struct DecodedSegment {
    /// The number of the engine.
    pub engine: usize,
    pub output: SegmentOutput,
    pub result: SegmentResult,
    /// The end of the segment in the trace bytes.
    pub to: Option<usize>,
}

/// Paths and events in order.
#[derive(Debug, Default)]
pub(super) struct SegmentOutput {
    paths: Vec<PathIdx>,
    /// Each item, with the number of paths before it.
    items: Vec<(usize, OutputItem)>,
    /// The timing packets.
    pub log: TimingLog,
    /// The paths that are new since the engine's last segment.
    pub table_delta: Option<PathTableDelta>,
}

/// An item between paths.
#[derive(Debug)]
enum OutputItem {
    Event(Event),
    /// All later items happened after this many timing records.
    DeferredTime(usize),
}

impl SegmentOutput {
    /// Replays the output to a history. `tables` are those of the engine, `times` the timestamps of
    /// the log.
    pub fn replay(
        &mut self,
        tables: &mut PathTables,
        times: &ResolvedTimestamps,
        builder: &mut HistoryBuilder,
    ) {
        if let Some(table_delta) = self.table_delta.take() {
            tables.apply(table_delta);
        }
        let table = tables.paths();
        let mut done = 0;
        for (before, item) in self.items.drain(..) {
            builder.paths(&table, self.paths.get(done..before).unwrap_or(&[]));
            done = before;
            let event = match item {
                OutputItem::Event(event) => Some(event),
                OutputItem::DeferredTime(records) => times.at(records).map(Event::Time),
            };
            event.into_iter().for_each(|event| builder.event(event));
        }
        builder.paths(&table, self.paths.get(done..).unwrap_or(&[]));
    }

    fn push(&mut self, item: OutputItem) {
        self.items.push((self.paths.len(), item));
    }

    /// Replaces the content by these paths.
    pub fn rewrite(&mut self, paths: &[PathIdx]) {
        self.clear();
        self.paths.extend_from_slice(paths);
    }

    /// Drops the content.
    pub fn clear(&mut self) {
        self.paths.clear();
        self.items.clear();
        self.log.clear();
        self.table_delta = None;
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.paths) + size_of_val(&*self.items) + self.log.memory()
    }

    /// Returns the paths.
    pub fn paths(&self) -> &[PathIdx] {
        &self.paths
    }
}

/// A sink that records the output of an engine.
pub(super) struct OutputRecorder<'a> {
    output: &'a RefCell<SegmentOutput>,
    /// The offset in the trace of the decoded bytes.
    offset: u64,
    stopped: &'a dyn Fn() -> bool,
}

impl<'a> OutputRecorder<'a> {
    pub fn new(output: &'a RefCell<SegmentOutput>, offset: u64, stopped: &'a dyn Fn() -> bool) -> Self {
        Self {
            output,
            offset,
            stopped,
        }
    }
}

impl Sink for OutputRecorder<'_> {
    /// The new paths of the table are stored when the segment ends.
    fn paths(&mut self, _table: &PathTable<'_>, executed: &[PathIdx]) {
        self.output.borrow_mut().paths.extend_from_slice(executed);
    }

    /// The native engine reports all instructions in paths.
    fn instruction(&mut self, _at: Avma, _len: u8, _cofi: Cofi) {}

    fn event(&mut self, event: Event) {
        self.output
            .borrow_mut()
            .push(OutputItem::Event(event.moved(self.offset)));
    }

    fn deferred_time(&mut self, records: usize) {
        self.output.borrow_mut().push(OutputItem::DeferredTime(records));
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        if (self.stopped)() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
