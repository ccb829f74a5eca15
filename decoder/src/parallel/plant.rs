//! Makes the forest of a history that grows, beside the thread that lets it grow.

use super::desk::Failed;
use super::news::{HandedOn, News, Tables};
use super::tape::Tape;
use crate::{Canceled, Forest, Functions, History, HistoryBuilder, Mark, Watch, forest};
use std::sync::Arc;

/// What a history got by a segment.
#[derive(Debug)]
pub(super) struct Growth {
    news: News,
    /// The paths that were executed, on the tape of the segment.
    executed: Tape,
    /// Marks in and before them.
    marks: Vec<Mark>,
    /// Instructions of the history so far.
    total: u64,
}

impl Growth {
    /// Bytes of it.
    pub fn memory(&self) -> usize {
        self.executed.memory() + size_of_val(&*self.marks)
    }
}

/// How much of a history was handed on.
#[derive(Debug, Default)]
pub(super) struct Grown {
    tables: HandedOn,
    executed: usize,
    marks: usize,
}

impl Grown {
    /// What the history got since, on that tape.
    pub fn next(&mut self, history: &HistoryBuilder, mut tape: Tape) -> Growth {
        let (flow, marks) = history.so_far();
        tape.rewrite(flow.executions().get(self.executed..).unwrap_or(&[]));
        self.executed += tape.runs().len();
        // One behind the last instruction may still become another.
        let marks = marks.get(self.marks..).unwrap_or(&[]);
        let settled = marks.partition_point(|mark| mark.index < flow.len());
        let growth = Growth {
            news: self.tables.take_news(&flow.runs()),
            executed: tape,
            marks: marks.get(..settled).unwrap_or(&[]).to_vec(),
            total: flow.len(),
        };
        self.marks += growth.marks.len();
        growth
    }
}

/// A forest in the making.
pub(super) struct Planter<'a> {
    builder: forest::Builder<'a>,
    tables: Tables,
    /// Marks that were not met yet.
    marks: Vec<Mark>,
    /// How many were.
    met: usize,
}

impl<'a> Planter<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            builder: forest::Builder::new(functions),
            tables: Tables::default(),
            marks: Vec::new(),
            met: 0,
        }
    }

    /// Adds what the history got by the next segment. Gives its tape back, empty.
    pub fn plant(&mut self, growth: Growth, watch: &Watch<'_>) -> Result<Tape, Failed> {
        self.tables.learn(growth.news);
        self.marks.extend(growth.marks);
        let silent = Watch {
            progress: &|_| {},
            ..*watch
        };
        let runs = self.tables.runs();
        let met = self
            .builder
            .feed(growth.executed.runs(), runs, &self.marks, growth.total, &silent)
            .map_err(|Canceled| Failed::Canceled)?;
        self.marks.drain(..met);
        self.met += met;
        let mut tape = growth.executed;
        tape.clear();
        Ok(tape)
    }

    /// The forest of a history, all of which was handed on but for its last marks.
    pub fn finish(self, history: &History) -> Forest {
        let marks = history.marks().get(self.met..);
        self.builder
            .finish(Arc::clone(&history.flow), marks.unwrap_or(&[]))
    }
}
