//! How far the decode of several traces is, told by whoever decodes.

use crate::watch::Stage;
use crate::{Canceled, Event, Runs, Sink, Watch};
use backtrail_pt::{Avma, Cofi};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one of several traces adds to the bytes that are done.
pub(crate) struct Meter<'a> {
    watch: &'a Watch<'a>,
    /// Bytes done of all, and how many there are.
    done: &'a AtomicU64,
    total: u64,
    /// Bytes of this trace that are in `done`.
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

    /// This trace is decoded up to an offset.
    pub fn report(&self, offset: u64) -> Result<(), Canceled> {
        let more = offset.saturating_sub(self.here.fetch_max(offset, Ordering::Relaxed));
        let before = self.done.fetch_add(more, Ordering::Relaxed);
        self.watch.report(Stage::Decode, before + more, self.total)
    }

    pub fn watch(&self) -> &Watch<'a> {
        self.watch
    }
}

/// A sink for the tail of a trace, whose work is metered.
pub(crate) struct Metered<'a, S> {
    pub sink: &'a mut S,
    /// Where in the trace the tail begins.
    pub offset: u64,
    pub meter: &'a Meter<'a>,
}

impl<S: Sink> Sink for Metered<'_, S> {
    fn begin(&mut self) {
        self.sink.begin();
    }

    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        self.sink.runs(runs, executed);
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
