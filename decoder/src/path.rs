//! The table of paths of a history: sequences of executed blocks.

use crate::BlockId;
use crate::block::{Blocks, Instruction};
use crate::table::{SyncCursor, Table, TableDelta};

/// The index of a path in a table of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathIdx(pub(crate) u32);

impl PathIdx {
    /// The index of no path.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Returns it as an index into a list by path.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The table of paths, and of the blocks they consist of, to which an engine's output refers by
/// number.
#[derive(Clone, Copy, Debug)]
pub struct PathTable<'a> {
    pub(crate) blocks: &'a Blocks,
    pub(crate) paths: &'a Paths,
}

impl<'a> PathTable<'a> {
    /// Returns the instructions of a path in execution order; none if no path has this number.
    pub fn instructions(self, path: PathIdx) -> impl Iterator<Item = Instruction> + 'a {
        let Self { blocks, paths } = self;
        let of_block = move |&block: &BlockId| {
            (0..blocks.code(block).len()).filter_map(move |at| blocks.instruction(block, at))
        };
        paths.blocks(path).iter().flat_map(of_block)
    }

    /// Returns the last instruction of a path.
    pub(crate) fn last(self, path: PathIdx) -> Option<Instruction> {
        let &block = self.paths.blocks(path).last()?;
        self.blocks
            .instruction(block, self.blocks.code(block).len().checked_sub(1)?)
    }
}

/// Paths by number, each a sequence of blocks of a [`Blocks`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths(Table<Path, BlockId>);

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
    pub fn push(&mut self, parts: &[BlockId], blocks: &Blocks) -> Option<PathIdx> {
        let count = parts.iter().map(|&block| blocks.count(block)).sum::<u64>();
        self.push_counted(parts, u32::try_from(count).ok()?)
    }

    /// Like [`Self::push`], for a path with a known number of instructions.
    pub fn push_counted(&mut self, parts: &[BlockId], count: u32) -> Option<PathIdx> {
        let len = u32::try_from(parts.len()).ok()?;
        let first = self.0.parts.push_all(parts)?;
        self.0.rows.push(Path { first, len, count }).map(PathIdx)
    }

    /// Returns what is new since `cursor`, and updates `cursor`.
    pub fn delta(&self, cursor: &mut SyncCursor) -> TableDelta<Path, BlockId> {
        self.0.delta(cursor)
    }

    /// Applies a delta of the table that this one copies.
    pub fn apply(&mut self, delta: TableDelta<Path, BlockId>) {
        self.0.apply(delta);
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.0.rows.len()
    }

    /// Returns the number of instructions; 0 if there is no such path.
    pub fn count(&self, path: PathIdx) -> u64 {
        self.0.rows.get(path.0).map_or(0, |path| u64::from(path.count))
    }

    /// Returns the blocks of a path; empty if there is no such path.
    pub fn blocks(&self, path: PathIdx) -> &[BlockId] {
        let path = self.0.rows.get(path.0);
        path.map_or(&[], |path| self.0.parts.slice(path.first, path.len as usize))
    }

    /// Returns the block with instruction `within` of a path, and the instruction's number in the
    /// block.
    pub fn block_at(&self, path: PathIdx, within: usize, blocks: &Blocks) -> Option<(BlockId, usize)> {
        let mut rest = within;
        for &block in self.blocks(path) {
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
