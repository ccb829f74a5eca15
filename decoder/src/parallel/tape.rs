//! What an engine told, to be told again by another thread.

use super::news::{News, Tables};
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
    /// The runs that the engine knows now and did not know at the end of its last tape.
    pub news: Option<News>,
}

impl Tape {
    /// Tells all of it to a history; `tables` are those of the engine that told it.
    pub fn replay(&mut self, tables: &mut Tables, builder: &mut HistoryBuilder) {
        if let Some(news) = self.news.take() {
            tables.learn(news);
        }
        let runs = tables.runs();
        let mut told = 0;
        for (before, event) in self.events.drain(..) {
            builder.runs(&runs, self.runs.get(told..before).unwrap_or(&[]));
            builder.event(event);
            told = before;
        }
        builder.runs(&runs, self.runs.get(told..).unwrap_or(&[]));
    }

    /// Holds these runs and nothing else, in the room that it has.
    pub fn rewrite(&mut self, runs: &[u32]) {
        self.clear();
        self.runs.extend_from_slice(runs);
    }

    /// Holds nothing.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.events.clear();
        self.news = None;
    }

    /// Bytes of what it holds.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.runs) + size_of_val(&*self.events)
    }

    /// The runs that it holds.
    pub fn runs(&self) -> &[u32] {
        &self.runs
    }
}

/// Keeps what an engine tells.
pub(super) struct Recorder<'a> {
    tape: &'a RefCell<Tape>,
    /// Where in the trace the bytes begin that are decoded.
    offset: u64,
    halted: &'a dyn Fn() -> bool,
}

impl<'a> Recorder<'a> {
    pub fn new(tape: &'a RefCell<Tape>, offset: u64, halted: &'a dyn Fn() -> bool) -> Self {
        Self { tape, offset, halted }
    }
}

impl Sink for Recorder<'_> {
    /// What they are is put on the tape when it is full.
    fn runs(&mut self, _runs: &Runs<'_>, executed: &[u32]) {
        self.tape.borrow_mut().runs.extend_from_slice(executed);
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
