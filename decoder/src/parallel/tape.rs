//! What an engine told, to be told again by another thread.

use super::news::{News, Tables};
use crate::engine::native::{Notes, Stamps};
use crate::{Event, HistoryBuilder, Runs, Sink};
use backtrail_pt::{Avma, Cofi};
use std::cell::RefCell;
use std::ops::ControlFlow;

/// Runs and events in order.
#[derive(Debug, Default)]
pub(super) struct Tape {
    runs: Vec<u32>,
    /// Each with how many of the runs came before it.
    told: Vec<(usize, Told)>,
    /// What tells the time.
    pub notes: Notes,
    /// The runs that the engine knows now and did not know at the end of its last tape.
    pub news: Option<News>,
}

/// What was told between runs.
#[derive(Debug)]
enum Told {
    Event(Event),
    /// What follows happened when so many notes were taken.
    Noted(usize),
}

impl Tape {
    /// Tells all of it to a history; `tables` are those of the engine that told it, `stamps` the times of its notes.
    pub fn replay(&mut self, tables: &mut Tables, stamps: &Stamps, builder: &mut HistoryBuilder) {
        if let Some(news) = self.news.take() {
            tables.learn(news);
        }
        let runs = tables.runs();
        let mut done = 0;
        for (before, told) in self.told.drain(..) {
            builder.runs(&runs, self.runs.get(done..before).unwrap_or(&[]));
            done = before;
            let event = match told {
                Told::Event(event) => Some(event),
                Told::Noted(notes) => stamps.at(notes).map(Event::Time),
            };
            event.into_iter().for_each(|event| builder.event(event));
        }
        builder.runs(&runs, self.runs.get(done..).unwrap_or(&[]));
    }

    fn tell(&mut self, told: Told) {
        self.told.push((self.runs.len(), told));
    }

    /// Holds these runs and nothing else, in the room that it has.
    pub fn rewrite(&mut self, runs: &[u32]) {
        self.clear();
        self.runs.extend_from_slice(runs);
    }

    /// Holds nothing.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.told.clear();
        self.notes.clear();
        self.news = None;
    }

    /// Bytes of what it holds.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.runs) + size_of_val(&*self.told) + self.notes.memory()
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
        self.tape.borrow_mut().tell(Told::Event(event.moved(self.offset)));
    }

    fn noted(&mut self, notes: usize) {
        self.tape.borrow_mut().tell(Told::Noted(notes));
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        if (self.halted)() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
