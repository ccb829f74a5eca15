//! The beginnings and ends of blocks, each looked up once.

use super::rules::{Rules, Source};
use crate::Runs;
use crate::forest::places::Place;

/// The first and the last instructions of blocks, by block.
#[derive(Default)]
pub(super) struct Ends {
    known: Vec<Option<(Place, Source)>>,
}

impl Ends {
    /// Those of a block.
    #[inline]
    pub fn of(&mut self, block: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<(Place, Source)> {
        match self.known.get(block as usize) {
            Some(&Some(ends)) => Some(ends),
            _ => self.find(block, runs, rules),
        }
    }

    #[cold]
    fn find(&mut self, block: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<(Place, Source)> {
        let count = runs.blocks.code(block).len();
        let last = runs.blocks.instruction(block, count.checked_sub(1)?)?;
        let first = runs.blocks.get(block)?.start;
        let ends = (rules.places.of(first), rules.source(last));
        let at = block as usize;
        if self.known.len() <= at {
            self.known.resize(runs.blocks.len().max(at + 1), None);
        }
        *self.known.get_mut(at)? = Some(ends);
        Some(ends)
    }
}
