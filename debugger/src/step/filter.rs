//! The code that a move passes over, given where it begins.

use super::{Direction, Steps};
use crate::code::CodePoint;
use crate::error::Result;
use crate::lines::FrameKey;
use crate::skip::StepFilter;
use rustc_hash::FxHashSet;

/// A frame, and the code that it was executing.
#[derive(Clone, Copy)]
pub(super) struct FrameAt {
    pub key: FrameKey,
    pub point: CodePoint,
}

impl Steps<'_> {
    /// Returns the filter of a move from `from`.
    ///
    /// As in GDB, a rule has no effect in the function that it names, nor in the functions that it
    /// called.
    pub(super) fn active_filter(&self, direction: Direction, from: u64) -> Result<StepFilter> {
        let mut filter = self.filter.clone();
        if filter.rules.is_empty() {
            return Ok(filter);
        }
        let points = self.points_around(self.seen_from(direction, from))?;
        filter.rules.retain(|rule| {
            let rule = std::slice::from_ref(rule);
            !points.iter().any(|&at| self.lines.lines.is_skipped(at, rule))
        });
        Ok(filter)
    }

    /// Returns the code at an index, and the calls that lead to it.
    fn points_around(&self, index: u64) -> Result<FxHashSet<CodePoint>> {
        let mut points = FxHashSet::default();
        let pc = self.history().pc(index);
        points.extend(pc.map(|pc| self.lines.point(index, pc)));
        let mut at = self.forest().call_at(index);
        while let Some(id) = at {
            let call = self.forest().call(id);
            match call.parent {
                Some(parent) => points.extend([self.lines.site(parent, &call)]),
                None => self.lines.needs_beginning(id)?,
            }
            at = call.parent;
        }
        Ok(points)
    }

    /// The frame `number` levels out of the innermost one.
    pub(super) fn frame_at(&self, direction: Direction, from: u64, number: usize) -> Option<FrameAt> {
        let key = self.current_frame(direction, from)?;
        let seen = self.seen_from(direction, from);
        let pc = self.history().pc(seen);
        let point = pc.map(|pc| self.lines.point(seen, pc));
        let call = self.forest().call(key.call);
        let mut frame = FrameAt {
            key,
            point: point.unwrap_or_else(|| self.lines.point_in(key.call, call.function)),
        };
        for _ in 0..number {
            frame = self.frame_around(frame)?;
        }
        Some(frame)
    }

    /// The frame that called a frame, or that it is inlined into.
    pub(super) fn frame_around(&self, frame: FrameAt) -> Option<FrameAt> {
        if let Some(chain) = self.lines.lines.around(frame.key.chain) {
            let key = FrameKey { chain, ..frame.key };
            return Some(FrameAt { key, ..frame });
        }
        let key = self.lines.caller(frame.key)?;
        let call = self.forest().call(frame.key.call);
        Some(FrameAt {
            key,
            point: self.lines.site(key.call, &call),
        })
    }

    /// Returns whether a frame is library code.
    pub(super) fn is_library(&self, frame: FrameAt) -> bool {
        self.lines.lines.is_library_frame(frame.point, frame.key.chain)
    }
}
