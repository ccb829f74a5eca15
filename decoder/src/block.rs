//! The table of distinct blocks of a history.

use crate::Version;
use crate::table::{SyncCursor, Table, TableDelta};
use backtrail_pt::{Avma, Cofi};

/// One instruction of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub pc: Avma,
    /// Its length in bytes, 1–15.
    pub len: u8,
    /// Its control-flow class.
    pub cofi: Cofi,
}

impl Instruction {
    /// Returns the address after it.
    #[must_use]
    pub fn next(&self) -> Avma {
        self.pc + u64::from(self.len)
    }
}

/// The index of a block in a history's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub(crate) u32);

impl BlockId {
    /// The index of no block.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Returns it as an index into a list by block.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The most instructions of a block. This bounds the table's offsets and the scan within a block.
pub(crate) const MAX_INSTRUCTIONS: usize = 1024;

/// An instruction of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// The offset from the start of the block; 1024 instructions of 15 bytes are below 2^16.
    pub offset: u16,
    pub len: u8,
    pub cofi: Cofi,
}

/// A run of executed instructions that are contiguous in memory.
///
/// A block ends at a change of flow, or where something happened between (a gap, a signal). After
/// self-modification, the same addresses are another block, even if the instructions are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub start: Avma,
    /// The start of its instructions in the table's parts.
    first: u32,
    /// 1 to [`MAX_INSTRUCTIONS`].
    pub count: u16,
}

/// The distinct blocks of a history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    table: Table<Block, Code>,
    /// The first block id of each version of the code; ascending.
    versions: Vec<(BlockId, Version)>,
}

impl Blocks {
    pub fn len(&self) -> usize {
        self.table.rows.len()
    }

    pub fn get(&self, block: BlockId) -> Option<&Block> {
        self.table.rows.get(block.0)
    }

    /// Returns the number of instructions; 0 if there is no such block.
    pub fn count(&self, block: BlockId) -> u64 {
        self.get(block).map_or(0, |block| u64::from(block.count))
    }

    /// Returns the instructions; empty if there is no such block.
    pub fn code(&self, block: BlockId) -> &[Code] {
        let row = self.get(block);
        row.map_or(&[], |row| {
            self.table.parts.slice(row.first, usize::from(row.count))
        })
    }

    /// Returns the size in bytes.
    pub fn size(&self, block: BlockId) -> u64 {
        let last = self.code(block).last();
        last.map_or(0, |code| u64::from(code.offset) + u64::from(code.len))
    }

    /// Returns instruction `within` of a block.
    pub fn instruction(&self, block: BlockId, within: usize) -> Option<Instruction> {
        let start = self.get(block)?.start;
        let code = self.code(block).get(within)?;
        Some(Instruction {
            pc: start + u64::from(code.offset),
            len: code.len,
            cofi: code.cofi,
        })
    }

    /// Appends a block and returns its id; `None` if ids have run out.
    pub fn push(&mut self, start: Avma, code: &[Code]) -> Option<BlockId> {
        let count = u16::try_from(code.len()).ok()?;
        let first = self.table.parts.push_all(code)?;
        self.table.rows.push(Block { start, first, count }).map(BlockId)
    }

    /// Returns what is new since `cursor`, and updates `cursor`.
    pub fn delta(&self, cursor: &mut SyncCursor) -> TableDelta<Block, Code> {
        self.table.delta(cursor)
    }

    /// Applies a delta of the table that this one copies. Versions are not copied.
    pub fn apply(&mut self, delta: TableDelta<Block, Code>) {
        self.table.apply(delta);
    }

    /// Starts a version: blocks appended from now on belong to it.
    pub fn begin_version(&mut self, version: Version) {
        let from = BlockId(self.table.rows.len() as u32);
        self.versions.push((from, version));
    }

    /// Returns the version in which the block was appended.
    pub fn version(&self, block: BlockId) -> Version {
        let after = self.versions.partition_point(|&(from, _)| from <= block);
        let last = after.checked_sub(1).and_then(|last| self.versions.get(last));
        last.map_or(Version::default(), |&(_, version)| version)
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }
}
