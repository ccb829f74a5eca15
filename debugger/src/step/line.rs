//! `step`, `next` and their reverses.

use super::{Direction, Steps};
use crate::error::Result;

impl Steps<'_> {
    /// The nearest line start.
    pub(super) fn step(&self, direction: Direction, from: u64) -> Result<Option<u64>> {
        let limit = self.limit(direction, from);
        Ok(match direction {
            Direction::Forward => self.lines.next_start(from, limit)?,
            Direction::Backward => self.lines.previous_start(from, limit)?,
        })
    }

    /// The nearest line start in the current frame or a frame around it.
    pub(super) fn next(&self, direction: Direction, from: u64) -> Result<Option<u64>> {
        let Some(frame) = self.current_frame(direction, from) else {
            return Ok(None);
        };
        let limit = self.limit(direction, from);
        Ok(match direction {
            Direction::Forward => self.lines.next_in_frame(from, frame, limit)?,
            Direction::Backward => self.lines.previous_in_frame(from, frame, limit)?,
        })
    }
}
