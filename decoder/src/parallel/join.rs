//! Puts together what was decoded of the segments of a trace, in order.

use super::desk::{Done, Failed};
use super::news::Tables;
use super::plant::{Grown, Growth};
use super::tape::Tape;
use crate::engine::native::{Ended, Reckoner};
use crate::{History, HistoryBuilder};

/// A history in the making, out of the tapes of several engines.
pub(super) struct Joiner {
    builder: HistoryBuilder,
    /// Of each engine.
    tables: Vec<Tables>,
    reckoner: Reckoner,
    /// How the last segment ended.
    last: Option<Ended>,
    /// What of it was handed on to a forest, when one is wanted.
    grown: Option<Grown>,
}

/// What is left of a segment that is part of the history.
pub(super) enum Joined {
    /// What the forest gets next.
    Growth(Growth),
    /// An empty tape: no forest is wanted.
    Tape(Tape),
}

impl Joiner {
    /// Begins a history, which a forest may follow.
    pub fn new(builder: HistoryBuilder, reckoner: Reckoner, followed: bool) -> Self {
        Self {
            builder,
            tables: Vec::new(),
            reckoner,
            last: None,
            grown: followed.then(Grown::default),
        }
    }

    /// Adds the next segment. Gives back its tape, with what a forest has to get of it.
    pub fn join(&mut self, done: Done) -> Result<Joined, Failed> {
        let Done {
            engine,
            mut tape,
            ended,
            to,
        } = done;
        if self
            .last
            .as_ref()
            .is_some_and(|last| !last.is_continued_by(&ended))
        {
            return Err(Failed::Apart);
        }
        self.last = Some(ended);
        let stamps = self.reckoner.reckon(&tape.notes, to).ok_or(Failed::Apart)?;
        if self.tables.len() <= engine {
            self.tables.resize_with(engine + 1, Tables::default);
        }
        if let Some(tables) = self.tables.get_mut(engine) {
            self.builder.of_engine(engine);
            tape.replay(tables, stamps, &mut self.builder);
        }
        Ok(match &mut self.grown {
            Some(grown) => Joined::Growth(grown.next(&self.builder, tape)),
            None => {
                tape.clear();
                Joined::Tape(tape)
            }
        })
    }

    /// The history.
    pub fn finish(self) -> History {
        self.builder.finish()
    }
}
