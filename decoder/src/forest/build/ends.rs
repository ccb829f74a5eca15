//! The beginnings and ends of blocks, each looked up once.

use super::rules::{Rules, Source};
use crate::Runs;
use crate::forest::places::Place;
use crate::forest::stack::NONE;

/// The first and the last instructions of blocks, by block.
#[derive(Default)]
pub(super) struct Ends {
    known: Vec<Option<End>>,
}

/// Those of a block.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub first: Place,
    pub last: Source,
    /// The number of the place behind it, if it may simply go on there; [`NONE`].
    pub falls_to: u32,
    /// The block's instructions.
    pub count: u32,
}

impl Ends {
    /// Those of a block.
    pub fn of(&mut self, block: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<End> {
        self.meet(&[block], runs, rules);
        self.known(block).copied()
    }

    /// Those of a block that was met.
    #[inline]
    pub fn known(&self, block: u32) -> Option<&End> {
        self.known.get(block as usize)?.as_ref()
    }

    /// Looks up those of blocks that were not met yet.
    #[inline]
    pub fn meet(&mut self, blocks: &[u32], runs: Runs<'_>, rules: &mut Rules<'_>) {
        for &block in blocks {
            if self.known(block).is_none() {
                self.find(block, runs, rules);
            }
        }
    }

    #[cold]
    fn find(&mut self, block: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<()> {
        let count = runs.blocks.code(block).len();
        let last = runs.blocks.instruction(block, count.checked_sub(1)?)?;
        let first = rules.places.of(runs.blocks.get(block)?.start);
        let last = rules.source(last);
        let at = block as usize;
        if self.known.len() <= at {
            self.known.resize(runs.blocks.len().max(at + 1), None);
        }
        *self.known.get_mut(at)? = Some(End {
            first,
            last,
            falls_to: last.falls_to().unwrap_or(NONE),
            count: u32::try_from(count).ok()?,
        });
        Some(())
    }
}
