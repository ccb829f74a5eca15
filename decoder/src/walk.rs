//! A cursor over the instructions of a history, in both directions.

use crate::Instruction;
use crate::history::Flow;

/// Stands between two instructions; each step is constant time.
///
/// As an [`Iterator`] it goes forward; [`Walker::prev`] goes backward.
#[derive(Clone, Debug)]
pub struct Walker<'a> {
    flow: &'a Flow,
    /// The execution of a path that the instruction ahead is in; their number at the end.
    execution: usize,
    /// Which of the path's blocks it is in, and which of the block's instructions it is.
    part: usize,
    within: usize,
    index: u64,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(flow: &'a Flow, from: u64) -> Self {
        let mut walker = Self {
            flow,
            execution: flow.executions().len(),
            part: 0,
            within: 0,
            index: from.min(flow.len()),
        };
        if let Some(place) = flow.place(from) {
            (walker.execution, walker.within) = (place.execution, place.within);
            while let Some(block) = walker.block()
                && let count = walker.len_of(block)
                && walker.within >= count
            {
                walker.within -= count;
                walker.part += 1;
            }
        }
        walker
    }

    /// The index of the instruction that [`Iterator::next`] gives.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The instruction ahead, without a step.
    #[must_use]
    pub fn peek(&self) -> Option<Instruction> {
        self.flow.blocks.instruction(self.block()?, self.within)
    }

    /// Steps backward over an instruction.
    pub fn prev(&mut self) -> Option<Instruction> {
        let before = (self.execution, self.part, self.within);
        if self.within > 0 {
            self.within -= 1;
        } else {
            if self.part > 0 {
                self.part -= 1;
            } else {
                self.execution = self.execution.checked_sub(1)?;
                self.part = self.parts().len().saturating_sub(1);
            }
            let count = self.block().map_or(0, |block| self.len_of(block));
            self.within = count.saturating_sub(1);
        }
        let Some(instruction) = self.peek() else {
            (self.execution, self.part, self.within) = before;
            return None;
        };
        self.index -= 1;
        Some(instruction)
    }

    /// The blocks of the path that the instruction ahead is in.
    fn parts(&self) -> &'a [u32] {
        let path = self.flow.executions().get(self.execution);
        path.map_or(&[], |&path| self.flow.paths.parts(path))
    }

    fn block(&self) -> Option<u32> {
        self.parts().get(self.part).copied()
    }

    fn len_of(&self, block: u32) -> usize {
        self.flow.blocks.count(block) as usize
    }
}

impl Iterator for Walker<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        let block = self.block()?;
        let instruction = self.flow.blocks.instruction(block, self.within)?;
        self.index += 1;
        self.within += 1;
        if self.within >= self.len_of(block) {
            (self.part, self.within) = (self.part + 1, 0);
            if self.part >= self.parts().len() {
                (self.execution, self.part) = (self.execution + 1, 0);
            }
        }
        Some(instruction)
    }
}
