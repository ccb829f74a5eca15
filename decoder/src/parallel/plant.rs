//! Makes the forest of a history that grows, beside the thread that lets it grow.

use super::desk::Failed;
use super::news::{Known, News, Tables};
use crate::forest::Room;
use crate::{Canceled, Forest, Functions, HistoryBuilder, Mark, Watch, forest};
use std::sync::Arc;

/// What a history got by a segment.
#[derive(Debug, Default)]
pub(super) struct Growth {
    news: News,
    /// The paths that were executed.
    executed: Vec<u32>,
    /// Marks in and before them.
    marks: Vec<Mark>,
    /// Instructions of the history so far.
    total: u64,
}

/// How much of a history was handed on.
#[derive(Debug, Default)]
pub(super) struct Grown {
    known: Known,
    executed: usize,
    marks: usize,
}

impl Grown {
    /// What the history got since.
    pub fn next(&mut self, history: &HistoryBuilder) -> Growth {
        let (flow, marks) = history.so_far();
        let mut growth = Growth {
            total: flow.len(),
            ..Growth::default()
        };
        growth.news.extend(&flow.runs(), &mut self.known);
        let executed = flow.executions();
        growth
            .executed
            .extend_from_slice(executed.get(self.executed..).unwrap_or(&[]));
        // One behind the last instruction may still become another.
        let rest = marks.get(self.marks..).unwrap_or(&[]);
        let settled = rest.partition_point(|mark| mark.index < flow.len());
        growth.marks.extend(rest.iter().take(settled).cloned());
        (self.executed, self.marks) = (executed.len(), self.marks + settled);
        growth
    }
}

/// A forest in the making.
pub(crate) struct Planter<'a> {
    room: Arc<Room>,
    builder: forest::Builder<'a>,
    tables: Tables,
    /// Marks that were not met yet.
    marks: Vec<Mark>,
    /// How many were.
    met: usize,
}

impl<'a> Planter<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        let room = Arc::default();
        let mut builder = forest::Builder::new(functions);
        builder.draw_from(&room);
        Self {
            room,
            builder,
            tables: Tables::default(),
            marks: Vec::new(),
            met: 0,
        }
    }

    /// Where the forest takes memory from: who has nothing else to do may make some ready.
    pub fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Adds what the history got by the next segment.
    pub(super) fn plant(&mut self, growth: Growth, watch: &Watch<'_>) -> Result<(), Failed> {
        self.tables.learn(&growth.news);
        self.marks.extend(growth.marks);
        let silent = Watch {
            progress: &|_| {},
            ..*watch
        };
        let runs = self.tables.runs();
        let met = self
            .builder
            .feed(&growth.executed, runs, &self.marks, growth.total, &silent)
            .map_err(|Canceled| Failed::Canceled)?;
        self.marks.drain(..met);
        self.met += met;
        Ok(())
    }

    /// The forest; `marks` are all of the history.
    pub fn finish(self, marks: &[Mark]) -> Forest {
        self.builder.finish(marks.get(self.met..).unwrap_or(&[]))
    }
}
