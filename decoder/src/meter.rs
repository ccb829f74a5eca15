//! Measures the progress of the decode of several traces.

use crate::watch::Stage;
use crate::{Canceled, Event, PathIdx, PathTable, Sink, Watch};
use backtrail_pt::{Avma, Cofi};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of one of several traces.
pub(crate) struct Meter<'a> {
    watch: &'a Watch<'a>,
    /// Bytes done and total bytes, over all traces.
    done: &'a AtomicU64,
    total: u64,
    /// Bytes of this trace included in `done`.
    here: AtomicU64,
}

impl<'a> Meter<'a> {
    pub fn new(watch: &'a Watch<'a>, done: &'a AtomicU64, total: u64) -> Self {
        Self {
            watch,
            done,
            total,
            here: AtomicU64::new(0),
        }
    }

    /// Reports that this trace is decoded up to an offset.
    pub fn report(&self, offset: u64) -> Result<(), Canceled> {
        let more = offset.saturating_sub(self.here.fetch_max(offset, Ordering::Relaxed));
        let before = self.done.fetch_add(more, Ordering::Relaxed);
        self.watch.report(Stage::Decode, before + more, self.total)
    }

    pub fn watch(&self) -> &Watch<'a> {
        self.watch
    }
}

/// A sink for the tail of a trace that reports progress.
pub(crate) struct Metered<'a, S> {
    pub sink: &'a mut S,
    /// The offset of the tail in the trace.
    pub offset: u64,
    pub meter: &'a Meter<'a>,
}

impl<S: Sink> Sink for Metered<'_, S> {
    fn begin(&mut self) {
        self.sink.begin();
    }

    fn paths(&mut self, table: &PathTable<'_>, executed: &[PathIdx]) {
        self.sink.paths(table, executed);
    }

    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.sink.instruction(at, len, cofi);
    }

    fn event(&mut self, event: Event) {
        self.sink.event(event.moved(self.offset));
    }

    fn progress(&mut self, offset: u64) -> ControlFlow<()> {
        match self.meter.report(offset) {
            Ok(()) => ControlFlow::Continue(()),
            Err(Canceled) => ControlFlow::Break(()),
        }
    }
}
