//! `finish` and `reverse-finish`, and the frames that they leave.

use super::{Direction, Steps};
use crate::error::Result;
use crate::lines::{FrameKey, OwnInstructions};
use backtrail_decoder::Entered;
use backtrail_pt::Avma;

impl Steps<'_> {
    /// Leaves frame `number`, and the library frames around it.
    ///
    /// Without a frame of own code around it, only the frame itself is left.
    pub(super) fn finish(&self, direction: Direction, from: u64, number: usize) -> Result<Option<u64>> {
        let Some(frame) = self.frame_at(direction, from, number) else {
            return Ok(None);
        };
        if !self.filter.libraries {
            return self.leave(frame.key, direction, from);
        }
        let selected = frame;
        let mut frame = frame;
        loop {
            let Some(around) = self.frame_around(frame) else {
                self.lines.needs_beginning(frame.key.call)?;
                return self.leave(selected.key, direction, from);
            };
            if !self.is_library(around) {
                return self.leave(frame.key, direction, from);
            }
            frame = around;
        }
    }

    /// Leaves the innermost frame only.
    pub(super) fn finish_innermost(&self, direction: Direction, from: u64) -> Result<Option<u64>> {
        match self.current_frame(direction, from) {
            Some(frame) => self.leave(frame, direction, from),
            None => Ok(None),
        }
    }

    /// Leaves a frame: forward to the instruction after its return, backward to its call.
    ///
    /// A copy inlined into its caller is left at the first instruction outside of it.
    fn leave(&self, frame: FrameKey, direction: Direction, from: u64) -> Result<Option<u64>> {
        let call = self.forest().call(frame.call);
        let lines = self.lines.lines;
        let chain = |pc: Avma| lines.chain(self.lines.point_in(frame.call, pc));
        let outside = |pc: Avma| !lines.is_within(chain(pc), frame.chain);
        let own = |from: u64| OwnInstructions::new(&self.lines, frame.call, from, outside);
        match direction {
            Direction::Forward => {
                if Self::is_inlined(frame)
                    && let Some(outside) = own(from + 1).next(call.end)?
                {
                    return Ok(Some(outside));
                }
                Ok(Some(call.end.max(from + 1)))
            }
            Direction::Backward => {
                if Self::is_inlined(frame)
                    && let Some(outside) = own(from).previous(0)?
                {
                    return Ok(Some(outside));
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
