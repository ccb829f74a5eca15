//! Makes a history of what an engine pushes.

mod interner;
mod marks;

use super::History;
use crate::{Event, Sink};
use backtrail_pt::{Avma, Cofi, Tid};
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
    /// Begins the history of a thread.
    #[must_use]
    pub fn new(tid: Tid) -> Self {
        Self {
            tid,
            interner: Interner::default(),
            marker: Marker::default(),
        }
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

    /// Ends the history.
    #[must_use]
    pub fn finish(self) -> History {
        self.marker.finish(self.tid, self.interner.finish())
    }
}

impl Sink for HistoryBuilder {
    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.interner.push(at, len, cofi);
    }

    fn event(&mut self, event: Event) {
        if self
            .marker
            .event(event, self.interner.len(), self.interner.last())
        {
            self.interner.cut();
        }
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
