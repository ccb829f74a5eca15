//! The fastest way: chunk after chunk, and rows of them.

use super::Flow;
use crate::engine::native::code::Block;
use crate::engine::native::raw::Raw;

impl<'b> Flow<'_, 'b> {
    /// Goes on from the block with number `at` by chunks as long as there are any. Gives the block that is next, or
    /// [`Block::NONE`].
    #[inline(never)]
    pub(super) fn leap(&mut self, mut at: u32, raw: &mut Raw<'b>) -> u32 {
        let mut here = *raw;
        while at != Block::NONE && self.until_progress > 1 {
            let offset = here.offset;
            let Some(taken) = self.learnt.chunks.take(at, &mut here, &mut self.returns) else {
                break;
            };
            self.push_run(taken.way.run);
            self.trail.push(offset, at, taken.way.run, taken.did);
            at = taken.way.next;
            if self.learnt.chunks.is_making() {
                self.learnt.chunks.boundary(&here, at, &mut self.learnt.code);
            } else if let Some(hash) = taken.hash
                && let Some(row) = self.trail.behind(hash, here.offset, at)
            {
                at = self.repeat(row, &mut here);
            }
        }
        *raw = here;
        at
    }
}
