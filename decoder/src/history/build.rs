//! Builds a history from the output of an engine.

mod blocks_by_start;
mod interner;
mod marks;

use super::{Flow, History};
use crate::{Event, Mark, MarkKind, PathIdx, PathTable, Sink, Version};
use backtrail_pt::{Avma, Cofi, Tid, Tsc};
use interner::Interner;
use marks::MarkBuilder;
use std::ops::ControlFlow;

/// The [`Sink`] that builds a [`History`].
#[derive(Debug)]
pub struct HistoryBuilder {
    tid: Tid,
    interner: Interner,
    marks: MarkBuilder,
}

impl HistoryBuilder {
    /// The least packet bytes per executed path. gzip, with short paths, has about seven; others
    /// have fifteen and more.
    const BYTES_EACH: usize = 4;

    /// Starts the history of a thread.
    #[must_use]
    pub fn new(tid: Tid) -> Self {
        Self {
            tid,
            interner: Interner::default(),
            marks: MarkBuilder::default(),
        }
    }

    /// Makes a mark of every value, so that parts of the history can be copied.
    pub(crate) fn marking_all_values(mut self) -> Self {
        self.marks.marks_all_values = true;
        self
    }

    /// Reserves memory for a trace of `bytes` bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.interner.reserve(bytes / Self::BYTES_EACH);
    }

    /// Returns the number of instructions so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.interner.len()
    }

    /// Returns whether there is no instruction so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Selects the engine that produces the next output. Each engine numbers its paths
    /// independently.
    pub(crate) fn select_engine(&mut self, engine: usize) {
        self.interner.select_engine(engine);
    }

    /// Returns the flow so far, which must end with paths, and its marks.
    pub(crate) fn so_far(&self) -> (&Flow, &[Mark]) {
        (self.interner.flow(), self.marks.marks())
    }

    /// Adds a mark unchanged, when a history is made of parts of others.
    pub(crate) fn mark(&mut self, kind: MarkKind, tsc: Option<Tsc>) {
        self.interner.cut();
        self.marks.push(Mark {
            index: self.interner.len(),
            kind,
            tsc,
        });
    }

    /// Returns the newest timestamp.
    pub(crate) fn last_stamp(&self) -> Option<Tsc> {
        self.marks.last_stamp()
    }

    /// Keeps the newest timestamp: something ends here.
    pub(crate) fn pin(&mut self) {
        self.marks.pin();
    }

    /// Starts a version of the code, in which the bytes in these (first, last) inclusive ranges
    /// have changed.
    pub(crate) fn change_code(&mut self, version: Version, changed: &[(Avma, Avma)]) {
        self.interner.change(version, changed);
        self.marks.version(self.interner.len(), version);
    }

    pub(crate) fn add_errors(&mut self, errors: u64) {
        self.marks.add_errors(errors);
    }

    /// Returns the history.
    #[must_use]
    pub fn finish(self) -> History {
        self.marks.finish(self.tid, self.interner.finish())
    }
}

impl Sink for HistoryBuilder {
    fn begin(&mut self) {
        self.interner.begin();
    }

    fn paths(&mut self, table: &PathTable<'_>, executed: &[PathIdx]) {
        self.interner.paths(*table, executed);
    }

    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.interner.push(at, len, cofi);
    }

    fn event(&mut self, event: Event) {
        let Self { interner, marks, .. } = self;
        if marks.event(event, interner.len(), || interner.last()) {
            interner.cut();
        }
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
