//! The instruction flow alone: block table, block executions, and the way from an index to a place.

use crate::Instruction;
use crate::block::Blocks;

/// Instructions in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub blocks: Blocks,
    /// The block of each execution.
    executions: Vec<u32>,
    /// `sampled[i]`: instructions before execution `i * SAMPLE`.
    sampled: Vec<u64>,
    len: u64,
}

/// Where an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The execution it is in; their number at the end.
    pub execution: usize,
    /// Which of the block's instructions it is.
    pub within: usize,
}

/// Executions for each entry of the prefix index: an eighth of a byte an execution, and at most this
/// many steps after the binary search.
const SAMPLE: usize = 64;

impl Flow {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn executions(&self) -> &[u32] {
        &self.executions
    }

    /// Appends the execution of a block of the table.
    pub fn execute(&mut self, block: u32) {
        if self.executions.len().is_multiple_of(SAMPLE) {
            self.sampled.push(self.len);
        }
        self.executions.push(block);
        self.len += self.blocks.count(block);
    }

    /// Gives back memory that was kept for more.
    pub fn shrink(&mut self) {
        self.executions.shrink_to_fit();
        self.sampled.shrink_to_fit();
    }

    /// Where instruction `index` is; `None` at the end and beyond.
    pub fn place(&self, index: u64) -> Option<Place> {
        if index >= self.len {
            return None;
        }
        let sample = self
            .sampled
            .partition_point(|&before| before <= index)
            .checked_sub(1)?;
        let mut before = *self.sampled.get(sample)?;
        for (step, &id) in self.executions.get(sample * SAMPLE..)?.iter().enumerate() {
            let count = self.blocks.count(id);
            if index < before + count {
                return Some(Place {
                    execution: sample * SAMPLE + step,
                    within: (index - before) as usize,
                });
            }
            before += count;
        }
        None
    }

    pub fn instruction(&self, place: Place) -> Option<Instruction> {
        self.blocks
            .instruction(*self.executions.get(place.execution)?, place.within)
    }

    /// How often each block was executed, by id.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.blocks.len()];
        for &id in &self.executions {
            if let Some(count) = counts.get_mut(id as usize) {
                *count += 1;
            }
        }
        counts
    }

    pub fn memory(&self) -> usize {
        self.blocks.memory() + size_of_val(&*self.executions) + size_of_val(&*self.sampled)
    }
}
