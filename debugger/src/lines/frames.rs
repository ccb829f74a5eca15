//! The line starts of one frame and of those around it: what `next` and `reverse-next` choose from.

use super::own_instructions::OwnInstructions;
use super::{FrameKey, LineStarts};
use crate::code::Statement;
use crate::error::Result;
use backtrail_decoder::CallId;
use backtrail_pt::Avma;

impl LineStarts<'_> {
    /// The first line start after `from` and before `limit` in `frame` or a frame that it is
    /// within.
    pub fn next_in_frame(&self, from: u64, frame: FrameKey, limit: u64) -> Result<Option<u64>> {
        let limit = limit.min(self.history.len());
        let mut frame = Some(frame);
        let mut at = from.saturating_add(1);
        while at < limit {
            let Some(now) = frame else {
                // The calls that it was within are over and none is known around them: any line
                // will do.
                frame = self.frame(at);
                if frame.is_none() || self.is_start(at)? {
                    return Ok(frame.map(|_| at));
                }
                at += 1;
                continue;
            };
            if let Some(found) = self.next_of_call(at, now, limit)? {
                return Ok(Some(found));
            }
            at = at.max(self.forest.call(now.call).end);
            if at < limit {
                frame = self.around(now)?;
            }
        }
        Ok(None)
    }

    /// Returns the first of these at or after `from` that the call of `frame` executed itself.
    pub(super) fn next_of_call(&self, from: u64, frame: FrameKey, limit: u64) -> Result<Option<u64>> {
        let (mut at, mut run) = (from, None);
        loop {
            let wanted = |pc: Avma| self.can_start(pc, frame, run);
            let Some(found) = OwnInstructions::new(self, frame.call, at, wanted).next(limit)? else {
                return Ok(None);
            };
            if self.stops_in(found, frame)? {
                return Ok(Some(found));
            }
            run = self
                .statement(found)
                .filter(|statement| self.is_in(*statement, frame));
            at = found + 1;
        }
    }

    /// The last line start before `from`, at `limit` or after, in `frame` or a frame that it is
    /// within.
    pub fn previous_in_frame(&self, from: u64, frame: FrameKey, limit: u64) -> Result<Option<u64>> {
        let mut frame = Some(frame);
        let mut at = from;
        while at > limit {
            let Some(now) = frame else {
                frame = self.frame(at - 1);
                if frame.is_none() {
                    break;
                }
                continue;
            };
            if let Some(found) = self.previous_of_call(at, now, limit)? {
                return Ok(Some(found));
            }
            let first = self.forest.call(now.call).first;
            if first < limit {
                break;
            }
            at = at.min(first);
            frame = self.around(now)?;
        }
        Ok(None)
    }

    /// Returns the last of these before `from` that the call of `frame` executed itself.
    pub(super) fn previous_of_call(&self, from: u64, frame: FrameKey, limit: u64) -> Result<Option<u64>> {
        let (mut at, mut run) = (from, None);
        loop {
            let wanted = |pc: Avma| self.can_start(pc, frame, run);
            let found = OwnInstructions::new(self, frame.call, at, wanted).previous(limit)?;
            if let Some(run) = run {
                // The run begins after the found instruction, unless that is before the limit.
                let first = found.map_or(limit, |found| found + 1);
                let begin = self.first_of(run, frame.call, first, at)?;
                if let Some(begin) = begin
                    && self.stops_in(begin, frame)?
                {
                    return Ok(Some(begin));
                }
            }
            let Some(found) = found else { return Ok(None) };
            if self.stops_in(found, frame)? {
                return Ok(Some(found));
            }
            run = self
                .statement(found)
                .filter(|statement| self.is_in(*statement, frame));
            at = found;
        }
    }

    /// The first instruction from `from` on and before `end` that a call executed itself for a
    /// statement.
    fn first_of(&self, statement: Statement, call: CallId, from: u64, end: u64) -> Result<Option<u64>> {
        let wanted = |pc: Avma| self.lines.statement(self.point_in(call, pc)) == Some(statement);
        OwnInstructions::new(self, call, from, wanted).next(end)
    }

    /// Returns whether a line of `frame`, or of a frame that it is within, may start at `pc`.
    ///
    /// `run` is the number of preceding instructions of the same statement; the function returns
    /// true at the end of a run too.
    fn can_start(&self, pc: Avma, frame: FrameKey, run: Option<Statement>) -> bool {
        let Some(statement) = self.lines.statement(self.point_in(frame.call, pc)) else {
            return false;
        };
        let ends = |run: Statement| !self.lines.is_within(statement.chain, run.chain);
        run != Some(statement) && (self.is_in(statement, frame) || run.is_some_and(ends))
    }

    fn is_in(&self, statement: Statement, frame: FrameKey) -> bool {
        self.lines.is_within(frame.chain, statement.chain)
    }

    fn stops_in(&self, index: u64, frame: FrameKey) -> Result<bool> {
        let Some(statement) = self.statement(index) else {
            return Ok(false);
        };
        Ok(self.is_in(statement, frame) && self.is_start(index)?)
    }
}
