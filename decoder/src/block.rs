//! The table of distinct blocks of a history: straight runs of instructions.

use crate::Version;
use crate::path::Paths;
use crate::table::{News, Seen, Table};
use backtrail_pt::{Avma, Cofi};

/// One instruction of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub pc: Avma,
    /// Its length in bytes, 1–15.
    pub len: u8,
    /// Its change of flow.
    pub cofi: Cofi,
}

impl Instruction {
    /// The address behind it.
    #[must_use]
    pub fn next(&self) -> Avma {
        self.pc + u64::from(self.len)
    }
}

/// A block of one history's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub(crate) u32);

/// What an engine says was executed, by number: straight runs of instructions, one or several in a row.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    pub(crate) blocks: &'a Blocks,
    pub(crate) paths: &'a Paths,
}

impl<'a> Runs<'a> {
    /// The instructions of a run, in the order of their execution; none for a number that no run has.
    pub fn instructions(self, run: u32) -> impl Iterator<Item = Instruction> + 'a {
        let Self { blocks, paths } = self;
        let of_block = move |&block: &u32| {
            (0..blocks.code(block).len()).filter_map(move |at| blocks.instruction(block, at))
        };
        paths.parts(run).iter().flat_map(of_block)
    }

    /// The last instruction of a run.
    pub(crate) fn last(self, run: u32) -> Option<Instruction> {
        let &block = self.paths.parts(run).last()?;
        self.blocks
            .instruction(block, self.blocks.code(block).len().checked_sub(1)?)
    }
}

/// The most instructions in a block: bounds both the table's offsets and the way inside a block.
pub(crate) const MAX_INSTRUCTIONS: usize = 1024;

/// An instruction inside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// From the start of the block; 1024 instructions of 15 bytes are below 2^16.
    pub offset: u16,
    pub len: u8,
    pub cofi: Cofi,
}

/// A run of instructions that follow one another in memory, all executed.
///
/// It ends at a change of flow, or where something came in between (a gap, a signal). The same
/// addresses with other bytes, as of self-modifying code, are another block, even if the instructions
/// look alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub start: Avma,
    /// Where its instructions begin among the table's parts.
    first: u32,
    /// 1 to [`MAX_INSTRUCTIONS`].
    pub count: u16,
}

/// The distinct blocks of a history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    table: Table<Block, Code>,
    /// From which id on blocks are of which version of the code; ascending.
    versions: Vec<(u32, Version)>,
}

impl Blocks {
    pub fn len(&self) -> usize {
        self.table.rows.len()
    }

    pub fn get(&self, id: u32) -> Option<&Block> {
        self.table.rows.get(id)
    }

    /// How many instructions the block has; 0 for a block that is none.
    pub fn count(&self, id: u32) -> u64 {
        self.get(id).map_or(0, |block| u64::from(block.count))
    }

    /// The instructions of a block; empty for a block that is none.
    pub fn code(&self, id: u32) -> &[Code] {
        let block = self.get(id);
        block.map_or(&[], |block| {
            self.table.parts.slice(block.first, usize::from(block.count))
        })
    }

    /// How many bytes the block has.
    pub fn size(&self, id: u32) -> u64 {
        let last = self.code(id).last();
        last.map_or(0, |code| u64::from(code.offset) + u64::from(code.len))
    }

    /// Instruction `within` of a block.
    pub fn instruction(&self, id: u32, within: usize) -> Option<Instruction> {
        let start = self.get(id)?.start;
        let code = self.code(id).get(within)?;
        Some(Instruction {
            pc: start + u64::from(code.offset),
            len: code.len,
            cofi: code.cofi,
        })
    }

    /// Appends a block and gives its id; `None` when ids have run out.
    pub fn push(&mut self, start: Avma, code: &[Code]) -> Option<u32> {
        let count = u16::try_from(code.len()).ok()?;
        let first = self.table.parts.push_all(code)?;
        self.table.rows.push(Block { start, first, count })
    }

    /// What another that has `seen` so much lacks; then it has seen that, too.
    pub fn news(&self, seen: &mut Seen) -> News<Block, Code> {
        self.table.news(seen)
    }

    /// What came to the table that this one is like, but for the versions.
    pub fn learn(&mut self, news: News<Block, Code>) {
        self.table.learn(news);
    }

    /// Blocks that are appended from now on are of this version.
    pub fn begin_version(&mut self, version: Version) {
        let from = self.table.rows.len() as u32;
        self.versions.push((from, version));
    }

    /// The version of the code that the block was appended in.
    pub fn version(&self, id: u32) -> Version {
        let after = self.versions.partition_point(|&(from, _)| from <= id);
        let last = after.checked_sub(1).and_then(|last| self.versions.get(last));
        last.map_or(Version::default(), |&(_, version)| version)
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }
}
