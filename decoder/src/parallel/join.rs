//! Puts together what was decoded of the stretches of a trace, in order.

use super::desk::Done;
use super::tape::Tables;
use crate::HistoryBuilder;
use crate::engine::native::Ended;

/// A history in the making, out of the tapes of several engines.
pub(crate) struct Joiner {
    builder: HistoryBuilder,
    /// Of each engine.
    tables: Vec<Tables>,
    /// How the last stretch ended.
    last: Option<Ended>,
}

impl Joiner {
    /// Goes on with a history.
    pub fn new(builder: HistoryBuilder) -> Self {
        Self {
            builder,
            tables: Vec::new(),
            last: None,
        }
    }

    /// Adds the next stretch. Says whether it continues the one before.
    pub(super) fn join(&mut self, done: Done) -> bool {
        let Done {
            engine, tape, ended, ..
        } = done;
        if self
            .last
            .as_ref()
            .is_some_and(|last| !last.is_continued_by(&ended))
        {
            return false;
        }
        self.last = Some(ended);
        if self.tables.len() <= engine {
            self.tables.resize_with(engine + 1, Tables::default);
        }
        if let Some(tables) = self.tables.get_mut(engine) {
            self.builder.of_engine(engine);
            tape.replay(tables, &mut self.builder);
        }
        true
    }

    /// The history.
    pub fn finish(self) -> HistoryBuilder {
        self.builder
    }
}
