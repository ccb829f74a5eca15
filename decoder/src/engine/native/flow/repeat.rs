//! Rows of steps that come again: gone without looking any of them up.

use super::Flow;
use crate::engine::native::did::What;
use crate::engine::native::raw::{Branch, Raw};
use crate::engine::native::trail::Row;

/// A row goes on as long as its steps have so many bytes each on the average: shorter ones are better gone once more as
/// they are, so that chunks are made of them.
const WORTH: usize = 12;

impl<'b> Flow<'_, 'b> {
    /// Goes on as a row was gone before, as long as the bytes are the same. Gives the block that is next.
    #[inline(never)]
    pub(super) fn repeat(&mut self, mut row: Row, raw: &mut Raw<'b>) -> u32 {
        let begin = raw.offset;
        let most = (self.until_progress - 1) as usize;
        let (mut same, mut steps) = (0, 0);
        while steps < most {
            let (step, len) = self.trail.first(row);
            if same < len {
                same = raw.same_as_before(row.distance, same);
                if same < len {
                    break;
                }
            }
            let offset = raw.offset;
            let goes = match step.did.what() {
                What::Chunk { .. } => {
                    let Self { learnt, returns, .. } = self;
                    learnt.chunks.take_again(step.did, len, raw, returns)
                }
                // Worth it only between chunks.
                _ if offset + len < begin + steps * WORTH => false,
                what => self.step_again(what, len, row, raw),
            };
            if !goes {
                break;
            }
            self.batch.push(step.run);
            row = self.trail.again(step, row, offset);
            same -= len;
            steps += 1;
        }
        self.until_progress -= steps as u32;
        self.trail.end(row, steps)
    }

    /// Goes a step of the memo once more, the first of a row.
    fn step_again(&mut self, what: What, len: usize, row: Row, raw: &mut Raw<'b>) -> bool {
        let effect = match what {
            What::Outcomes { effect } => {
                raw.skip(len, None);
                effect
            }
            What::Target { effect } => {
                let mut behind = *raw;
                let block = self.trail.behind_first(row);
                let there = self.learnt.code.blocks.get(block as usize);
                match behind.next() {
                    Some(Branch::Target(ip, _)) if there.is_some_and(|block| block.start == ip) => {}
                    _ => return false,
                }
                *raw = behind;
                effect
            }
            What::Chunk { .. } | What::Other => return false,
        };
        if let Some(effect) = self.learnt.memo.effect(effect) {
            self.learnt.memo.apply(effect, &mut self.returns);
        }
        true
    }
}
