//! The table of paths of a history: sequences of executed blocks.

use crate::block::{Blocks, Instruction};
use crate::table::{SyncCursor, Table, TableDelta};

/// The table of paths, and of the blocks they consist of, to which an engine's output refers by
/// number.
#[derive(Clone, Copy, Debug)]
pub struct PathTable<'a> {
    pub(crate) blocks: &'a Blocks,
    pub(crate) paths: &'a Paths,
}

impl<'a> PathTable<'a> {
    /// Returns the instructions of a path in execution order; none if no path has this number.
    pub fn instructions(self, path: u32) -> impl Iterator<Item = Instruction> + 'a {
        let Self { blocks, paths } = self;
        let of_block = move |&block: &u32| {
            (0..blocks.code(block).len()).filter_map(move |at| blocks.instruction(block, at))
        };
        paths.blocks(path).iter().flat_map(of_block)
    }

    /// Returns the last instruction of a path.
    pub(crate) fn last(self, path: u32) -> Option<Instruction> {
        let &block = self.paths.blocks(path).last()?;
        self.blocks
            .instruction(block, self.blocks.code(block).len().checked_sub(1)?)
    }
}

/// Paths by number, each a sequence of blocks of a [`Blocks`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths(Table<Path, u32>);

/// The row of a path; its parts are its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// The start of its blocks in the table's parts, and their number.
    first: u32,
    len: u32,
    /// The number of instructions.
    count: u32,
}

impl Paths {
    /// Appends a path and returns its number; `None` if numbers have run out.
    pub fn push(&mut self, parts: &[u32], blocks: &Blocks) -> Option<u32> {
        let count = parts.iter().map(|&block| blocks.count(block)).sum::<u64>();
        self.push_counted(parts, u32::try_from(count).ok()?)
    }

    /// Like [`Self::push`], for a path with a known number of instructions.
    pub fn push_counted(&mut self, parts: &[u32], count: u32) -> Option<u32> {
        let len = u32::try_from(parts.len()).ok()?;
        let first = self.0.parts.push_all(parts)?;
        self.0.rows.push(Path { first, len, count })
    }

    /// Returns what is new since `cursor`, and updates `cursor`.
    pub fn delta(&self, cursor: &mut SyncCursor) -> TableDelta<Path, u32> {
        self.0.delta(cursor)
    }

    /// Applies a delta of the table that this one copies.
    pub fn apply(&mut self, delta: TableDelta<Path, u32>) {
        self.0.apply(delta);
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.0.rows.len()
    }

    /// Returns the number of instructions; 0 if there is no such path.
    pub fn count(&self, id: u32) -> u64 {
        self.0.rows.get(id).map_or(0, |path| u64::from(path.count))
    }

    /// Returns the blocks of a path; empty if there is no such path.
    pub fn blocks(&self, id: u32) -> &[u32] {
        let path = self.0.rows.get(id);
        path.map_or(&[], |path| self.0.parts.slice(path.first, path.len as usize))
    }

    /// Returns the block with instruction `within` of a path, and the instruction's number in the
    /// block.
    pub fn block_at(&self, id: u32, within: usize, blocks: &Blocks) -> Option<(u32, usize)> {
        let mut rest = within;
        for &block in self.blocks(id) {
            let count = blocks.count(block) as usize;
            if rest < count {
                return Some((block, rest));
            }
            rest -= count;
        }
        None
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }
}
