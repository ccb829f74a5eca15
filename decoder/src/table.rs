//! An append-only table whose rows have parts, and whose additions can be sent to another thread
//! without a copy.

use crate::append_vec::{AppendVec, AppendVecDelta};

/// Append-only rows and their parts; the parts of a row are contiguous.
#[derive(Clone, Debug)]
pub(crate) struct Table<R, P> {
    pub rows: AppendVec<R>,
    pub parts: AppendVec<P>,
}

/// The additions to a table, for a copy of its earlier state.
#[derive(Debug)]
pub(crate) struct TableDelta<R, P> {
    rows: AppendVecDelta<R>,
    parts: AppendVecDelta<P>,
}

/// The state of a copy of a table.
#[derive(Debug, Default)]
pub(crate) struct SyncCursor {
    rows: usize,
    parts: usize,
}

impl<R, P> Default for Table<R, P> {
    fn default() -> Self {
        Self {
            rows: AppendVec::default(),
            parts: AppendVec::default(),
        }
    }
}

impl<R: Clone, P: Clone> Table<R, P> {
    /// Returns what is new since `cursor`, and updates `cursor`.
    pub fn delta(&self, cursor: &mut SyncCursor) -> TableDelta<R, P> {
        TableDelta {
            rows: self.rows.delta(&mut cursor.rows),
            parts: self.parts.delta(&mut cursor.parts),
        }
    }

    /// Applies a delta of the table that this one copies.
    pub fn apply(&mut self, delta: TableDelta<R, P>) {
        self.rows.apply(delta.rows);
        self.parts.apply(delta.parts);
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        self.rows.memory() + self.parts.memory()
    }
}
