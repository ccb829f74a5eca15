//! The instruction flow alone: tables of blocks and paths, path executions, and the way from an index to a
//! place.

use super::postings::Postings;
use crate::block::Blocks;
use crate::path::Paths;
use crate::{Canceled, Instruction, Runs, Watch};
use std::sync::OnceLock;

/// Instructions in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub blocks: Blocks,
    pub paths: Paths,
    /// The path of each execution.
    executions: Vec<u32>,
    /// `sampled[i]`: instructions before execution `i * SAMPLE`.
    sampled: Vec<u64>,
    len: u64,
    /// The path that is one block alone, by block; [`NONE`] until it is asked for.
    alone: Vec<u32>,
    /// Made by the first search: nothing is executed any more then.
    postings: OnceLock<Postings>,
}

const NONE: u32 = u32::MAX;

/// Where an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The execution it is in; their number at the end.
    pub execution: usize,
    /// Which of the path's instructions it is.
    pub within: usize,
}

/// Executions for each entry of the prefix index: an eighth of a byte an execution, and at most this
/// many steps after the binary search.
const SAMPLE: usize = 64;

impl Flow {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The blocks and the paths.
    pub fn runs(&self) -> Runs<'_> {
        Runs {
            blocks: &self.blocks,
            paths: &self.paths,
        }
    }

    /// The paths, in the order of their execution.
    pub fn executions(&self) -> &[u32] {
        &self.executions
    }

    /// Appends the execution of a path of the table.
    #[inline]
    pub fn execute(&mut self, path: u32) {
        if self.executions.len().is_multiple_of(SAMPLE) {
            self.sampled.push(self.len);
        }
        self.executions.push(path);
        self.len += self.paths.count(path);
    }

    /// Appends executions of paths of the table, each with its number of instructions. Says how many.
    pub fn execute_all(&mut self, paths: impl Iterator<Item = (u32, u32)>) -> usize {
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

    /// The path that is a block of the table alone.
    pub fn alone(&mut self, block: u32) -> Option<u32> {
        let at = block as usize;
        if self.alone.len() <= at {
            self.alone.resize(at + 1, NONE);
        }
        let known = self.alone.get_mut(at)?;
        if *known == NONE {
            *known = self.paths.push(&[block], &self.blocks)?;
        }
        Some(*known)
    }

    /// Gets memory for so many more executions at once, if there is as much. What is not used is not touched; what has to be moved
    /// as it grows is touched several times.
    pub fn reserve(&mut self, executions: usize) {
        // Without it, it just grows.
        let _ = self.executions.try_reserve(executions);
    }

    /// Gives back memory that was kept for more.
    pub fn shrink(&mut self) {
        self.executions.shrink_to_fit();
        self.sampled.shrink_to_fit();
        self.alone = Vec::new();
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
            let count = self.paths.count(id);
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

    /// The index of the instruction at a place, where there is one.
    pub fn index_of(&self, place: Place) -> Option<u64> {
        let sample = place.execution / SAMPLE;
        let before = *self.sampled.get(sample)?;
        let counts = self.executions.get(sample * SAMPLE..place.execution)?;
        let counts = counts.iter().map(|&path| self.paths.count(path));
        Some(before + counts.sum::<u64>() + place.within as u64)
    }

    /// The index for searches.
    pub fn postings(&self) -> &Postings {
        let make = || Postings::new(self, &Watch::none()).unwrap_or_default();
        self.postings.get_or_init(make)
    }

    /// Makes the index for searches.
    pub fn index(&self, watch: &Watch<'_>) -> Result<(), Canceled> {
        if self.postings.get().is_none() {
            let made = Postings::new(self, watch)?;
            self.postings.get_or_init(|| made);
        }
        Ok(())
    }

    pub fn instruction(&self, place: Place) -> Option<Instruction> {
        self.of_path(*self.executions.get(place.execution)?, place.within)
    }

    /// Instruction `within` of a path.
    pub fn of_path(&self, path: u32, within: usize) -> Option<Instruction> {
        let (block, within) = self.paths.part_at(path, within, &self.blocks)?;
        self.blocks.instruction(block, within)
    }

    /// How often each block was executed, by id.
    pub fn counts(&self) -> Vec<u64> {
        let mut of_paths = vec![0u64; self.paths.len()];
        for &id in &self.executions {
            if let Some(count) = of_paths.get_mut(id as usize) {
                *count += 1;
            }
        }
        let mut counts = vec![0; self.blocks.len()];
        for (path, executed) in of_paths.into_iter().enumerate() {
            for &block in self.paths.parts(path as u32) {
                if let Some(count) = counts.get_mut(block as usize) {
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
