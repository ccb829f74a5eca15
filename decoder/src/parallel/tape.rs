//! What an engine told, to be told again by another thread.

use super::news::{Known, News, Tables};
use crate::{Event, HistoryBuilder, Runs, Sink};
use backtrail_pt::{Avma, Cofi};
use std::cell::RefCell;
use std::ops::ControlFlow;

/// Runs and events in order.
#[derive(Debug, Default)]
pub(super) struct Tape {
    runs: Vec<u32>,
    /// Each with how many of the runs came before it.
    events: Vec<(usize, Event)>,
    news: News,
}

impl Tape {
    /// Tells all of it to a history; `tables` are those of the engine that told it.
    pub fn replay(&mut self, tables: &mut Tables, builder: &mut HistoryBuilder) {
        tables.learn(&self.news);
        let runs = tables.runs();
        let mut told = 0;
        for (before, event) in self.events.drain(..) {
            builder.runs(&runs, self.runs.get(told..before).unwrap_or(&[]));
            builder.event(event);
            told = before;
        }
        builder.runs(&runs, self.runs.get(told..).unwrap_or(&[]));
    }

    /// Empty, with room for as much as it held.
    pub fn cleared(self) -> Self {
        let Self {
            mut runs,
            mut events,
            news: _,
        } = self;
        runs.clear();
        events.clear();
        Self {
            runs,
            events,
            news: News::default(),
        }
    }
}

/// Keeps what an engine tells.
pub(super) struct Recorder<'a> {
    tape: &'a RefCell<Tape>,
    /// How much of the engine's tables is on tapes.
    known: Known,
    /// Where in the trace the bytes begin that are decoded.
    offset: u64,
    halted: &'a dyn Fn() -> bool,
}

impl<'a> Recorder<'a> {
    pub fn new(tape: &'a RefCell<Tape>, offset: u64, halted: &'a dyn Fn() -> bool) -> Self {
        Self {
            tape,
            known: Known::default(),
            offset,
            halted,
        }
    }
}

impl Sink for Recorder<'_> {
    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        let mut tape = self.tape.borrow_mut();
        tape.news.extend(runs, &mut self.known);
        tape.runs.extend_from_slice(executed);
    }

    /// The engine that decodes in segments has runs of all instructions.
    fn instruction(&mut self, _at: Avma, _len: u8, _cofi: Cofi) {}

    fn event(&mut self, event: Event) {
        let mut tape = self.tape.borrow_mut();
        let before = tape.runs.len();
        tape.events.push((before, event.moved(self.offset)));
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        if (self.halted)() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
