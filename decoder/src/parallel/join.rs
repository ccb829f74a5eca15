//! Puts together what was decoded of the segments of a trace, in order.

use super::desk::{Done, Failed};
use super::tape::{Tables, Tape};
use crate::engine::native::Ended;
use crate::{Canceled, Forest, Functions, History, HistoryBuilder, Watch, forest};

/// A history in the making, out of the tapes of several engines.
pub(crate) struct Joiner<'a> {
    builder: HistoryBuilder,
    /// Of each engine.
    tables: Vec<Tables>,
    /// How the last segment ended.
    last: Option<Ended>,
    /// The calls of the history, when they are wanted.
    forest: Option<forest::Builder<'a>>,
}

impl<'a> Joiner<'a> {
    /// Begins a history, and its forest when it is told where functions lie.
    pub fn new(builder: HistoryBuilder, functions: Option<&'a dyn Functions>) -> Self {
        Self {
            builder,
            tables: Vec::new(),
            last: None,
            forest: functions.map(forest::Builder::new),
        }
    }

    /// Adds the next segment, and gives back its tape, empty.
    pub(super) fn join(&mut self, done: Done, watch: &Watch<'_>) -> Result<Tape, Failed> {
        let Done {
            engine,
            mut tape,
            ended,
            ..
        } = done;
        if self
            .last
            .as_ref()
            .is_some_and(|last| !last.is_continued_by(&ended))
        {
            return Err(Failed::Apart);
        }
        self.last = Some(ended);
        if self.tables.len() <= engine {
            self.tables.resize_with(engine + 1, Tables::default);
        }
        if let Some(tables) = self.tables.get_mut(engine) {
            self.builder.of_engine(engine);
            tape.replay(tables, &mut self.builder);
        }
        let Some(forest) = &mut self.forest else {
            return Ok(tape.cleared());
        };
        let (flow, marks) = self.builder.so_far();
        let silent = Watch {
            progress: &|_| {},
            ..*watch
        };
        match forest.feed(flow, marks, &silent) {
            Ok(()) => Ok(tape.cleared()),
            Err(Canceled) => Err(Failed::Canceled),
        }
    }

    /// The history and the forest.
    pub fn finish(self) -> (History, Option<Forest>) {
        let history = self.builder.finish();
        let forest = self.forest.map(|forest| forest.finish(history.marks()));
        (history, forest)
    }
}
