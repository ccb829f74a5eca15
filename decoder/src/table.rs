//! A table whose rows have parts, and what comes to it can be handed to another thread without a copy.

use crate::shelf::{Boards, Shelf};

/// Rows that only become more, and the parts that they have, each row's together.
#[derive(Clone, Debug)]
pub(crate) struct Table<R, P> {
    pub rows: Shelf<R>,
    pub parts: Shelf<P>,
}

/// What is new in a table, for another that has what was before.
#[derive(Debug)]
pub(crate) struct News<R, P> {
    rows: Boards<R>,
    parts: Boards<P>,
}

/// How much of a table another has.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    rows: usize,
    parts: usize,
}

impl<R, P> Default for Table<R, P> {
    fn default() -> Self {
        Self {
            rows: Shelf::default(),
            parts: Shelf::default(),
        }
    }
}

impl<R: Clone, P: Clone> Table<R, P> {
    /// What another that has `seen` so much lacks; then it has seen that, too.
    pub fn news(&self, seen: &mut Seen) -> News<R, P> {
        News {
            rows: self.rows.news(&mut seen.rows),
            parts: self.parts.news(&mut seen.parts),
        }
    }

    /// What came to the table that this one is like.
    pub fn learn(&mut self, news: News<R, P>) {
        self.rows.learn(news.rows);
        self.parts.learn(news.parts);
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.rows.memory() + self.parts.memory()
    }
}
