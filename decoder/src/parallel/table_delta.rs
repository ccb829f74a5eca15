//! Deltas of the path and block tables, for copies of the tables on another thread.

use crate::block::{Block, Blocks, Code};
use crate::path::{Path, Paths};
use crate::table::{self, SyncCursor};
use crate::{BlockId, PathTable};

/// The new blocks and paths.
#[derive(Debug)]
pub(super) struct PathTableDelta {
    blocks: table::TableDelta<Block, Code>,
    paths: table::TableDelta<Path, BlockId>,
}

/// The state of the copies.
#[derive(Debug, Default)]
pub(super) struct PathTableCursor {
    blocks: SyncCursor,
    paths: SyncCursor,
}

impl PathTableCursor {
    /// Returns what is new since the last call.
    pub fn take_delta(&mut self, table: &PathTable<'_>) -> PathTableDelta {
        PathTableDelta {
            blocks: table.blocks.delta(&mut self.blocks),
            paths: table.paths.delta(&mut self.paths),
        }
    }
}

/// Copies of the block and path tables.
#[derive(Debug, Default)]
pub(super) struct PathTables {
    blocks: Blocks,
    paths: Paths,
}

impl PathTables {
    /// Returns the tables.
    pub fn paths(&self) -> PathTable<'_> {
        PathTable {
            blocks: &self.blocks,
            paths: &self.paths,
        }
    }

    /// Applies a delta.
    pub fn apply(&mut self, delta: PathTableDelta) {
        self.blocks.apply(delta.blocks);
        self.paths.apply(delta.paths);
    }
}
