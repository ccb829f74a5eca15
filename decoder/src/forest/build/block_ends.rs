//! The first and last instructions of blocks, each looked up once.

use super::rules::{Rules, Source};
use crate::forest::code_sites::{CodeSite, SiteIdx};
use crate::{BlockId, PathTable};

/// The first and last instructions by block.
#[derive(Default)]
pub(super) struct BlockEndTable {
    known: Vec<Option<BlockEnds>>,
}

/// The first and last instruction of a block.
#[derive(Clone, Copy)]
pub(super) struct BlockEnds {
    pub first: CodeSite,
    pub last: Source,
    /// The site after it, if the flow may fall through; else [`NONE`].
    pub falls_to: SiteIdx,
    /// The number of instructions.
    pub count: u32,
}

impl BlockEndTable {
    /// Returns those of a block, and looks them up if needed.
    pub fn of(&mut self, block: BlockId, table: PathTable<'_>, rules: &mut Rules<'_>) -> Option<BlockEnds> {
        self.look_up(&[block], table, rules);
        self.known(block).copied()
    }

    /// Returns those of a block that was looked up.
    #[inline]
    pub fn known(&self, block: BlockId) -> Option<&BlockEnds> {
        self.known.get(block.index())?.as_ref()
    }

    /// Looks up blocks that were not looked up yet.
    #[inline]
    pub fn look_up(&mut self, blocks: &[BlockId], table: PathTable<'_>, rules: &mut Rules<'_>) {
        for &block in blocks {
            if self.known(block).is_none() {
                self.find(block, table, rules);
            }
        }
    }

    #[cold]
    fn find(&mut self, block: BlockId, table: PathTable<'_>, rules: &mut Rules<'_>) -> Option<()> {
        let count = table.blocks.code(block).len();
        let last = table.blocks.instruction(block, count.checked_sub(1)?)?;
        let version = table.blocks.version(block);
        let first = rules.sites.of(table.blocks.get(block)?.start, version);
        let last = rules.source(last, version);
        let at = block.index();
        if self.known.len() <= at {
            self.known.resize(table.blocks.len().max(at + 1), None);
        }
        *self.known.get_mut(at)? = Some(BlockEnds {
            first,
            last,
            falls_to: last.falls_to().unwrap_or(SiteIdx::NONE),
            count: u32::try_from(count).ok()?,
        });
        Some(())
    }
}
