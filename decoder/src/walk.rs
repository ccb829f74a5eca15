//! A cursor over the instructions of a history, in both directions.

use crate::history::Flow;
use crate::{BlockId, Instruction};

/// A cursor between two instructions; each step takes constant time.
///
/// [`Iterator::next`] moves forward, [`Walker::prev`] backward.
#[derive(Clone, Debug)]
pub struct Walker<'a> {
    flow: &'a Flow,
    /// The path execution of the next instruction; the number of executions at the end.
    execution: usize,
    /// The block in the path, and the instruction in the block.
    block: usize,
    within: usize,
    index: u64,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(flow: &'a Flow, from: u64) -> Self {
        let mut walker = Self {
            flow,
            execution: flow.executions().len(),
            block: 0,
            within: 0,
            index: from.min(flow.len()),
        };
        if let Some(position) = flow.position(from) {
            (walker.execution, walker.within) = (position.execution, position.within);
            while let Some(block) = walker.block_id()
                && let count = walker.len_of(block)
                && walker.within >= count
            {
                walker.within -= count;
                walker.block += 1;
            }
        }
        walker
    }

    /// Returns the index of the instruction that [`Iterator::next`] returns.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the next instruction without moving.
    #[must_use]
    pub fn peek(&self) -> Option<Instruction> {
        self.flow.blocks.instruction(self.block_id()?, self.within)
    }

    /// Returns the block of the next instruction, and the number of its instructions before that.
    #[must_use]
    pub fn block(&self) -> Option<(BlockId, usize)> {
        Some((self.block_id()?, self.within))
    }

    /// Returns the instructions of a block, in order.
    pub fn instructions_of(&self, block: BlockId) -> impl Iterator<Item = Instruction> + '_ {
        (0..self.len_of(block)).filter_map(move |within| self.flow.blocks.instruction(block, within))
    }

    /// Moves forward by `count` instructions, but not beyond the end of the block.
    pub fn skip_in_block(&mut self, count: usize) {
        let Some(block) = self.block_id() else {
            return;
        };
        let len = self.len_of(block);
        let count = count.min(len.saturating_sub(self.within));
        self.index += count as u64;
        self.within += count;
        if self.within >= len {
            self.leave_block();
        }
    }

    /// Moves to the beginning of the next block.
    fn leave_block(&mut self) {
        (self.block, self.within) = (self.block + 1, 0);
        if self.block >= self.blocks().len() {
            (self.execution, self.block) = (self.execution + 1, 0);
        }
    }

    /// Moves back by an instruction and returns it.
    pub fn prev(&mut self) -> Option<Instruction> {
        let before = (self.execution, self.block, self.within);
        if self.within > 0 {
            self.within -= 1;
        } else {
            if self.block > 0 {
                self.block -= 1;
            } else {
                self.execution = self.execution.checked_sub(1)?;
                self.block = self.blocks().len().saturating_sub(1);
            }
            let count = self.block_id().map_or(0, |block| self.len_of(block));
            self.within = count.saturating_sub(1);
        }
        let Some(instruction) = self.peek() else {
            (self.execution, self.block, self.within) = before;
            return None;
        };
        self.index -= 1;
        Some(instruction)
    }

    /// Returns the blocks of the current path.
    fn blocks(&self) -> &'a [BlockId] {
        let path = self.flow.executions().get(self.execution);
        path.map_or(&[], |&path| self.flow.paths.blocks(path))
    }

    fn block_id(&self) -> Option<BlockId> {
        self.blocks().get(self.block).copied()
    }

    fn len_of(&self, block: BlockId) -> usize {
        self.flow.blocks.count(block) as usize
    }
}

impl Iterator for Walker<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        let block = self.block_id()?;
        let instruction = self.flow.blocks.instruction(block, self.within)?;
        self.index += 1;
        self.within += 1;
        if self.within >= self.len_of(block) {
            self.leave_block();
        }
        Some(instruction)
    }
}
