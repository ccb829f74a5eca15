//! `step`, `next` and their reverses.

use super::{Direction, Steps};
use crate::error::Result;
use crate::lines::LineStarts;

impl Steps<'_> {
    /// The nearest line start that is not passed over.
    pub(super) fn step(&self, direction: Direction, from: u64) -> Result<Option<u64>> {
        let filter = self.active_filter(direction, from)?;
        let lines = LineStarts {
            filter: Some(&filter),
            ..self.lines
        };
        let limit = self.limit(direction, from);
        match direction {
            Direction::Forward => lines.next_start(from, limit),
            Direction::Backward => lines.previous_start(from, limit),
        }
    }

    /// The nearest line start in the current frame or a frame around it.
    pub(super) fn next(&self, direction: Direction, from: u64) -> Result<Option<u64>> {
        let Some(frame) = self.current_frame(direction, from) else {
            return Ok(None);
        };
        let filter = self.active_filter(direction, from)?;
        let limit = self.limit(direction, from);
        if filter.is_empty() {
            return match direction {
                Direction::Forward => self.lines.next_in_frame(from, frame, limit),
                Direction::Backward => self.lines.previous_in_frame(from, frame, limit),
            };
        }
        let lines = LineStarts {
            filter: Some(&filter),
            ..self.lines
        };
        let seen = self.seen_from(direction, from);
        match direction {
            Direction::Forward => lines.next_stop_in_frame(from, frame, limit),
            Direction::Backward => lines.previous_stop_in_frame(from, seen, frame, limit),
        }
    }
}
