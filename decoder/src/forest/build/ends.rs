//! The beginnings and ends of blocks, each looked up once.

use super::rules::{Rules, Source};
use crate::forest::places::Place;
use crate::history::Flow;

/// The first and the last instructions of blocks, by block.
#[derive(Default)]
pub(super) struct Ends {
    known: Vec<Option<(Place, Source)>>,
}

impl Ends {
    /// Those of a block.
    #[inline]
    pub fn of(&mut self, block: u32, flow: &Flow, rules: &mut Rules<'_>) -> Option<(Place, Source)> {
        match self.known.get(block as usize) {
            Some(&Some(ends)) => Some(ends),
            _ => self.find(block, flow, rules),
        }
    }

    #[cold]
    fn find(&mut self, block: u32, flow: &Flow, rules: &mut Rules<'_>) -> Option<(Place, Source)> {
        let count = flow.blocks.code(block).len();
        let last = flow.blocks.instruction(block, count.checked_sub(1)?)?;
        let first = flow.blocks.get(block)?.start;
        let ends = (rules.places.of(first), rules.source(last));
        let at = block as usize;
        if self.known.len() <= at {
            self.known.resize(flow.blocks.len().max(at + 1), None);
        }
        *self.known.get_mut(at)? = Some(ends);
        Some(ends)
    }
}
