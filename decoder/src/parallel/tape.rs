//! What an engine told, to be told again by another thread.

use crate::block::{Blocks, Code};
use crate::path::Paths;
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

/// The blocks and the paths of an engine that are new on a tape.
#[derive(Debug, Default)]
struct News {
    /// Where each block starts, and how many instructions it has.
    blocks: Vec<(Avma, usize)>,
    code: Vec<Code>,
    /// How many blocks each path has.
    paths: Vec<usize>,
    parts: Vec<u32>,
}

impl News {
    /// What is in the tables beyond so many blocks and paths.
    fn extend(&mut self, runs: &Runs<'_>, blocks: usize, paths: usize) {
        for id in (blocks..runs.blocks.len()).map(|id| id as u32) {
            let Some(block) = runs.blocks.get(id) else {
                continue;
            };
            let code = runs.blocks.code(id);
            self.blocks.push((block.start, code.len()));
            self.code.extend_from_slice(code);
        }
        for id in (paths..runs.paths.len()).map(|id| id as u32) {
            let parts = runs.paths.parts(id);
            self.paths.push(parts.len());
            self.parts.extend_from_slice(parts);
        }
    }
}

/// The blocks and the paths that an engine had when its last tape ended.
#[derive(Debug, Default)]
pub(super) struct Tables {
    blocks: Blocks,
    paths: Paths,
}

impl Tables {
    fn learn(&mut self, news: &News) {
        let mut code = &*news.code;
        for &(start, count) in &news.blocks {
            let (own, rest) = code.split_at_checked(count).unwrap_or((code, &[]));
            self.blocks.push(start, own);
            code = rest;
        }
        let mut parts = &*news.parts;
        for &count in &news.paths {
            let (own, rest) = parts.split_at_checked(count).unwrap_or((parts, &[]));
            self.paths.push(own, &self.blocks);
            parts = rest;
        }
    }
}

impl Tape {
    /// Tells all of it to a history; `tables` are those of the engine that told it.
    pub fn replay(&mut self, tables: &mut Tables, builder: &mut HistoryBuilder) {
        tables.learn(&self.news);
        let runs = Runs {
            blocks: &tables.blocks,
            paths: &tables.paths,
        };
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
    /// How many blocks and paths of the engine are on a tape.
    known: (usize, usize),
    /// Where in the trace the bytes begin that are decoded.
    offset: u64,
    halted: &'a dyn Fn() -> bool,
}

impl<'a> Recorder<'a> {
    pub fn new(tape: &'a RefCell<Tape>, offset: u64, halted: &'a dyn Fn() -> bool) -> Self {
        let known = (0, 0);
        Self {
            tape,
            known,
            offset,
            halted,
        }
    }
}

impl Sink for Recorder<'_> {
    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        let mut tape = self.tape.borrow_mut();
        let now = (runs.blocks.len(), runs.paths.len());
        if now != self.known {
            tape.news.extend(runs, self.known.0, self.known.1);
            self.known = now;
        }
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
