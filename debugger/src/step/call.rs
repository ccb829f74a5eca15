//! `finish` and `reverse-finish`.

use super::{Direction, Steps};
use crate::error::Result;
use backtrail_decoder::Entered;

impl Steps<'_> {
    /// Out of frame `number`: forward behind its return, backward to its call.
    ///
    /// A copy inlined into its caller is left at the first instruction outside of it.
    pub(super) fn finish(&self, direction: Direction, from: u64, number: usize) -> Result<Option<u64>> {
        let innermost = self.current_frame(direction, from);
        let Some(frame) = innermost.and_then(|innermost| self.selected(innermost, number)) else {
            return Ok(None);
        };
        let call = self.forest().call(frame.call);
        let outside = |index: u64| {
            let pc = self.history().pc(index);
            pc.is_some_and(|pc| {
                !self
                    .lines
                    .lines
                    .is_within(self.lines.lines.chain(pc), frame.chain)
            })
        };
        match direction {
            Direction::Forward => {
                let mut at = from;
                while Self::is_inlined(frame) && at + 1 < call.end {
                    at += 1;
                    let here = self.forest().call_at(at);
                    if here != Some(frame.call) {
                        let callee = here.and_then(|here| self.lines.child_around(frame.call, here));
                        let Some(callee) = callee else { return Ok(None) };
                        at = callee.end.max(at + 1) - 1;
                    } else if outside(at) {
                        return Ok(Some(at));
                    }
                }
                Ok(Some(call.end.max(from + 1)))
            }
            Direction::Backward => {
                let mut at = from;
                while Self::is_inlined(frame)
                    && let Some(before) = self.lines.own_before(frame.call, at)
                {
                    at = before;
                    if outside(at) {
                        return Ok(Some(at));
                    }
                }
                match call.entered {
                    Entered::Call { site } | Entered::TailCall { site } => Ok(Some(site)),
                    Entered::Signal { .. } => Ok(call.first.checked_sub(1)),
                    // Its beginning is not in the history: to the first of it that is.
                    _ => {
                        self.lines.needs_beginning(frame.call)?;
                        Ok(Some(call.first).filter(|&first| first < from))
                    }
                }
            }
        }
    }
}
