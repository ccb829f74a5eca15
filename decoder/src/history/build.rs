//! Makes a history of what an engine pushes.

mod interner;
mod marks;
mod starts;

use super::{Flow, History};
use crate::{Event, Mark, MarkKind, Runs, Sink, Version};
use backtrail_pt::{Avma, Cofi, Tid, Tsc};
use interner::Interner;
use marks::Marker;
use std::ops::ControlFlow;

/// The [`Sink`] that makes a [`History`].
#[derive(Debug)]
pub struct HistoryBuilder {
    tid: Tid,
    interner: Interner,
    marker: Marker,
}

impl HistoryBuilder {
    /// Bytes of packets for each path that is executed, at least: gzip, where they are short, has some seven, others fifteen and more.
    const BYTES_EACH: usize = 4;

    /// Begins the history of a thread.
    #[must_use]
    pub fn new(tid: Tid) -> Self {
        Self {
            tid,
            interner: Interner::default(),
            marker: Marker::default(),
        }
    }

    /// A trace of so many bytes is to come in: room for what most have in it.
    pub(crate) fn expect(&mut self, bytes: usize) {
        self.interner.reserve(bytes / Self::BYTES_EACH);
    }

    /// How many instructions it has so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.interner.len()
    }

    /// It has no instruction so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// So many runs, the first of each, are the same of all engines by the same numbers.
    pub(crate) fn share(&mut self, runs: usize) {
        self.interner.share(runs);
    }

    /// What is told next, another engine of several tells, which numbers its runs for itself.
    pub(crate) fn of_engine(&mut self, engine: usize) {
        self.interner.of_engine(engine);
    }

    /// The flow so far, when the last that came in were runs, and the marks in it.
    pub(crate) fn so_far(&self) -> (&Flow, &[Mark]) {
        (self.interner.flow(), self.marker.marks())
    }

    /// Adds a mark as it is, when a history is made of parts of others.
    pub(crate) fn mark(&mut self, kind: MarkKind, tsc: Option<Tsc>) {
        self.interner.cut();
        self.marker.push(Mark {
            index: self.interner.len(),
            kind,
            tsc,
        });
    }

    /// The newest time stamp.
    pub(crate) fn last_stamp(&self) -> Option<Tsc> {
        self.marker.last_stamp()
    }

    /// Keeps the newest time stamp: something ends here.
    pub(crate) fn pin(&mut self) {
        self.marker.pin();
    }

    /// From here on the code is of another version, in which the bytes at these addresses, (first,
    /// last) inclusive, are others.
    pub(crate) fn change_code(&mut self, version: Version, changed: &[(Avma, Avma)]) {
        self.interner.change(version, changed);
        self.marker.version(self.interner.len(), version);
    }

    pub(crate) fn add_errors(&mut self, errors: u64) {
        self.marker.add_errors(errors);
    }

    /// Ends the history.
    #[must_use]
    pub fn finish(self) -> History {
        self.marker.finish(self.tid, self.interner.finish())
    }
}

impl Sink for HistoryBuilder {
    fn begin(&mut self) {
        self.interner.begin();
    }

    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        self.interner.runs(*runs, executed);
    }

    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.interner.push(at, len, cofi);
    }

    fn event(&mut self, event: Event) {
        let Self { interner, marker, .. } = self;
        if marker.event(event, interner.len(), || interner.last()) {
            interner.cut();
        }
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
