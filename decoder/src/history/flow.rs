//! The instruction flow of a history: the tables of blocks and paths, the path executions, and the
//! search for an instruction index.

use super::postings::Postings;
use crate::block::Blocks;
use crate::path::Paths;
use crate::{BlockId, Canceled, Instruction, PathIdx, PathTable, Watch};
use std::sync::OnceLock;

/// The executed instructions in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub blocks: Blocks,
    pub paths: Paths,
    /// The path of each execution.
    executions: Vec<PathIdx>,
    /// `sampled[i]`: the number of instructions before execution `i * SAMPLE`.
    sampled: Vec<u64>,
    len: u64,
    /// The path of a block alone, by block; [`PathIdx::NONE`] until it is needed.
    singles: Vec<PathIdx>,
    /// The search index, built by the first search, after the flow is complete.
    postings: OnceLock<Postings>,
}

/// The position of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowPosition {
    /// The path execution; the number of executions at the end.
    pub execution: usize,
    /// The instruction's number in the path.
    pub within: usize,
}

/// Executions per entry of the prefix index: 1/8 byte per execution, and at most this many steps
/// after the binary search.
const SAMPLE: usize = 64;

impl Flow {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the tables of blocks and paths.
    pub fn table(&self) -> PathTable<'_> {
        PathTable {
            blocks: &self.blocks,
            paths: &self.paths,
        }
    }

    /// Returns the paths in execution order.
    pub fn executions(&self) -> &[PathIdx] {
        &self.executions
    }

    /// Appends an execution of a path of the table.
    #[inline]
    pub fn execute(&mut self, path: PathIdx) {
        if self.executions.len().is_multiple_of(SAMPLE) {
            self.sampled.push(self.len);
        }
        self.executions.push(path);
        self.len += self.paths.count(path);
    }

    /// Appends executions of paths, each with its number of instructions. Returns how many.
    pub fn execute_all(&mut self, paths: impl Iterator<Item = (PathIdx, u32)>) -> usize {
        let before = self.executions.len();
        let mut until_sample = before.next_multiple_of(SAMPLE) - before;
        let (executions, sampled, mut len) = (&mut self.executions, &mut self.sampled, self.len);
        executions.extend(paths.map(|(path, count)| {
            if until_sample == 0 {
                sampled.push(len);
                until_sample = SAMPLE;
            }
            until_sample -= 1;
            len += u64::from(count);
            path
        }));
        self.len = len;
        self.executions.len() - before
    }

    /// Returns the path of a block alone.
    pub fn single(&mut self, block: BlockId) -> Option<PathIdx> {
        let at = block.index();
        if self.singles.len() <= at {
            self.singles.resize(at + 1, PathIdx::NONE);
        }
        let known = self.singles.get_mut(at)?;
        if *known == PathIdx::NONE {
            *known = self.paths.push(&[block], &self.blocks)?;
        }
        Some(*known)
    }

    /// Reserves memory for further executions, if it is available. Unused memory is not touched;
    /// growth would touch memory several times.
    pub fn reserve(&mut self, executions: usize) {
        // On failure, the vector grows as needed.
        let _ = self.executions.try_reserve(executions);
    }

    /// Releases spare memory.
    pub fn shrink(&mut self) {
        self.executions.shrink_to_fit();
        self.sampled.shrink_to_fit();
        self.singles = Vec::new();
    }

    /// Returns the position of instruction `index`; `None` at the end and beyond.
    pub fn position(&self, index: u64) -> Option<FlowPosition> {
        if index >= self.len {
            return None;
        }
        let sample = self
            .sampled
            .partition_point(|&before| before <= index)
            .checked_sub(1)?;
        let mut before = *self.sampled.get(sample)?;
        for (step, &id) in self.executions.get(sample * SAMPLE..)?.iter().enumerate() {
            let count = self.paths.count(id);
            if index < before + count {
                return Some(FlowPosition {
                    execution: sample * SAMPLE + step,
                    within: (index - before) as usize,
                });
            }
            before += count;
        }
        None
    }

    /// Returns the index of the instruction at a position, if there is one.
    pub fn index_of(&self, position: FlowPosition) -> Option<u64> {
        let sample = position.execution / SAMPLE;
        let before = *self.sampled.get(sample)?;
        let counts = self.executions.get(sample * SAMPLE..position.execution)?;
        let counts = counts.iter().map(|&path| self.paths.count(path));
        Some(before + counts.sum::<u64>() + position.within as u64)
    }

    /// Returns the search index.
    pub fn postings(&self) -> &Postings {
        let make = || self.build_postings(&Watch::none()).unwrap_or_default();
        self.postings.get_or_init(make)
    }

    fn build_postings(&self, watch: &Watch<'_>) -> Result<Postings, Canceled> {
        Postings::new(&self.blocks, &self.paths, &self.executions, watch)
    }

    /// Builds the search index.
    pub fn index(&self, watch: &Watch<'_>) -> Result<(), Canceled> {
        if self.postings.get().is_none() {
            let made = self.build_postings(watch)?;
            self.postings.get_or_init(|| made);
        }
        Ok(())
    }

    pub fn instruction(&self, position: FlowPosition) -> Option<Instruction> {
        self.of_path(*self.executions.get(position.execution)?, position.within)
    }

    /// Returns instruction `within` of a path.
    pub fn of_path(&self, path: PathIdx, within: usize) -> Option<Instruction> {
        let (block, within) = self.paths.block_at(path, within, &self.blocks)?;
        self.blocks.instruction(block, within)
    }

    /// Returns the executed blocks in order, each with the number of its instructions.
    pub fn executed_blocks(&self) -> impl Iterator<Item = (BlockId, u64)> + '_ {
        let blocks = self.executions.iter().flat_map(|&path| self.paths.blocks(path));
        blocks.map(|&block| (block, self.blocks.code(block).len() as u64))
    }

    /// Returns the number of executions of each block, by id.
    pub fn counts(&self) -> Vec<u64> {
        let mut of_paths = vec![0u64; self.paths.len()];
        for &id in &self.executions {
            if let Some(count) = of_paths.get_mut(id.index()) {
                *count += 1;
            }
        }
        let mut counts = vec![0; self.blocks.len()];
        for (path, executed) in of_paths.into_iter().enumerate() {
            for &block in self.paths.blocks(PathIdx(path as u32)) {
                if let Some(count) = counts.get_mut(block.index()) {
                    *count += executed;
                }
            }
        }
        counts
    }

    pub fn memory(&self) -> usize {
        self.blocks.memory()
            + self.paths.memory()
            + size_of_val(&*self.executions)
            + size_of_val(&*self.sampled)
            + self.postings.get().map_or(0, Postings::memory)
    }
}
