//! Line starts: the positions where stepping by lines stops. All line verbs rest on this definition.
//!
//! - The **frame** of an instruction is the call that executes it (of the [`Forest`]) together with
//!   the inlined copies around its address. A frame is *within* another when it is that frame, a
//!   call made in it, or a copy inlined into it, however deep.
//! - A **statement instruction** is one that the line table assigns to a line as a statement, outside
//!   of a function's prologue ([`Lines::statement`]). Others are invisible to line verbs.
//! - The **predecessor** of a statement instruction is the statement instruction that the same call
//!   executed last before it, outside of copies inlined into its own frame. What callees executed in
//!   between does not count.
//! - A statement instruction is a **line start** when it has no predecessor, or when its frame or its
//!   line is another than its predecessor's.
//!
//! Whether an index is a line start depends on the history alone, not on where one comes from. So
//! `step` is the next line start and `reverse-step` the last one before, and the two visit the same
//! ones in opposite order. `next` and `reverse-next` do the same among the line starts whose frame
//! the current frame is within, which leaves out those in callees.

use crate::code::{ChainId, Lines, Statement};
use crate::error::{Error, Result};
use crate::session::begins_unseen;
use backtrail_decoder::{Call, CallId, Entered, Forest, History, Left, Watch};
use backtrail_pt::{Avma, Cofi};
use std::sync::atomic::Ordering;

/// Finds line starts in one thread's history.
#[derive(Clone, Copy)]
pub struct LineStarts<'a> {
    /// What was executed.
    pub history: &'a History,
    /// There is older history, which is not decoded yet.
    pub is_partial: bool,
    /// Which call executed it.
    pub forest: &'a Forest,
    /// Which line it belongs to.
    pub lines: &'a dyn Lines,
    /// Ends long searches.
    pub watch: &'a Watch<'a>,
}

/// A call and the inlined copies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKey {
    /// The call.
    pub call: CallId,
    /// The inlined copies.
    pub chain: ChainId,
}

impl<'a> LineStarts<'a> {
    /// The statement that instruction `index` belongs to.
    #[must_use]
    pub fn statement(&self, index: u64) -> Option<Statement> {
        self.lines.statement(self.history.instruction(index)?.pc)
    }

    /// The frame of instruction `index`; at the end of history, of where the thread stood.
    #[must_use]
    pub fn frame(&self, index: u64) -> Option<FrameKey> {
        let call = self.forest.call_at(index)?;
        if let Some(instruction) = self.history.instruction(index) {
            return Some(FrameKey {
                call,
                chain: self.lines.chain(instruction.pc),
            });
        }
        let last = self.history.instruction(index.checked_sub(1)?)?;
        let chain = self.lines.chain(last.pc);
        let stood = self.history.pc(index).map(|pc| self.lines.chain(pc));
        let related =
            |stood: &ChainId| self.lines.is_within(*stood, chain) || self.lines.is_within(chain, *stood);
        let stayed =
            stood.filter(|stood| last.cofi != Cofi::Return && !last.cofi.is_call() && related(stood));
        Some(FrameKey {
            call,
            chain: stayed.unwrap_or(chain),
        })
    }

    /// Whether stepping by lines stops at instruction `index`.
    ///
    /// # Errors
    /// When canceled by the watch, as everything here; when a predecessor may be in history that is not decoded yet.
    pub fn is_start(&self, index: u64) -> Result<bool> {
        let Some(statement) = self.statement(index) else {
            return Ok(false);
        };
        let Some(id) = self.forest.call_at(index) else {
            return Ok(false);
        };
        let mut at = index;
        while let Some(before) = self.own_before(id, at) {
            at = before;
            let Some(candidate) = self.statement(at) else {
                continue;
            };
            if candidate == statement {
                return Ok(false);
            }
            let inlined_callee =
                candidate.chain != statement.chain && self.lines.is_within(candidate.chain, statement.chain);
            if !inlined_callee {
                return Ok(true);
            }
            self.check(at)?;
        }
        self.needs_beginning(id)?;
        Ok(true)
    }

    /// The first line start after `from` and before `limit`.
    pub fn next_start(&self, from: u64, limit: u64) -> Result<Option<u64>> {
        let limit = limit.min(self.history.len());
        let first = from.saturating_add(1);
        let mut before = self.history.instruction(from).map(|found| found.pc);
        let mut before_call = self.forest.call_at(from);
        for (index, instruction) in (first..limit).zip(self.history.walk(first)) {
            let statement = self.lines.statement(instruction.pc);
            if let Some(statement) = statement {
                let call = self.forest.call_at(index);
                let goes_on =
                    before_call == call && before.and_then(|pc| self.lines.statement(pc)) == Some(statement);
                before_call = call;
                if !goes_on && self.is_start(index)? {
                    return Ok(Some(index));
                }
            } else {
                before_call = None;
            }
            before = Some(instruction.pc);
            self.check(index)?;
        }
        Ok(None)
    }

    /// The last line start before `from`, at `limit` or after.
    pub fn previous_start(&self, from: u64, limit: u64) -> Result<Option<u64>> {
        let mut walker = self.history.walk(from);
        let mut ahead: Option<(u64, Statement)> = None;
        while walker.index() > limit {
            let Some(instruction) = walker.prev() else { break };
            let index = walker.index();
            let statement = self.lines.statement(instruction.pc);
            if let Some((later, of_later)) = ahead {
                let goes_on =
                    statement == Some(of_later) && self.forest.call_at(index) == self.forest.call_at(later);
                if !goes_on && self.is_start(later)? {
                    return Ok(Some(later));
                }
            }
            ahead = statement.map(|statement| (index, statement));
            self.check(index)?;
        }
        match ahead {
            Some((index, _)) if self.is_start(index)? => Ok(Some(index)),
            _ => Ok(None),
        }
    }

    /// The first line start after `from` and before `limit` in `frame` or a frame that it is within.
    pub fn next_in_frame(&self, from: u64, frame: FrameKey, limit: u64) -> Result<Option<u64>> {
        let mut frame = Some(frame);
        let mut at = from.saturating_add(1);
        while at < limit.min(self.history.len()) {
            let Some(here) = self.forest.call_at(at) else {
                break;
            };
            let Some(now) = frame else {
                // The calls that it was within are over and none is known around them: any line will do.
                frame = self.frame(at);
                if self.is_start(at)? {
                    return Ok(Some(at));
                }
                at += 1;
                continue;
            };
            if at >= self.forest.call(now.call).end {
                frame = self.around(now)?;
                continue;
            }
            if here != now.call {
                at = self
                    .child_around(now.call, here)
                    .map_or(at + 1, |child| child.end.max(at + 1));
                continue;
            }
            if self.stops_in(at, now)? {
                return Ok(Some(at));
            }
            at += 1;
            self.check(at)?;
        }
        Ok(None)
    }

    /// The last line start before `from`, at `limit` or after, in `frame` or a frame that it is within.
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
            match self.own_before(now.call, at) {
                Some(before) if before < limit => break,
                Some(before) => at = before,
                None => {
                    at = self.forest.call(now.call).first.min(at);
                    frame = self.around(now)?;
                    continue;
                }
            }
            if self.stops_in(at, now)? {
                return Ok(Some(at));
            }
            self.check(at)?;
        }
        Ok(None)
    }

    /// The last instruction before `index` that `call` itself executed.
    #[must_use]
    pub fn own_before(&self, call: CallId, index: u64) -> Option<u64> {
        let first = self.forest.call(call).first;
        let mut at = index;
        while at > first {
            let here = self.forest.call_at(at - 1)?;
            if here == call {
                return Some(at - 1);
            }
            // What is no callee (there should be none) is passed one by one.
            at = self
                .child_around(call, here)
                .map_or(at - 1, |child| child.first.min(at - 1));
        }
        None
    }

    /// What is to be answered depends on how a call began.
    ///
    /// # Errors
    /// [`Error::Earlier`] when that is not decoded yet.
    pub(crate) fn needs_beginning(&self, call: CallId) -> Result<()> {
        match self.is_partial && begins_unseen(&self.forest.call(call)) {
            true => Err(Error::Earlier),
            false => Ok(()),
        }
    }

    /// The frame that called `frame`; `None`: it is not in the history.
    fn around(&self, frame: FrameKey) -> Result<Option<FrameKey>> {
        let caller = self.caller(frame);
        if caller.is_none() {
            self.needs_beginning(frame.call)?;
        }
        Ok(caller)
    }

    /// The frame that called `frame`, as it was at the call.
    #[must_use]
    pub fn caller(&self, frame: FrameKey) -> Option<FrameKey> {
        let call = self.forest.call(frame.call);
        let parent = call.parent?;
        let site = self.own_before(parent, call.first);
        let adopted = self.forest.call(parent).entered == Entered::Adopted && call.left == Left::Return;
        let pc = match site {
            Some(site) => self.history.pc(site),
            // The call is not in the history; the return from it is, to right behind it.
            None if adopted => self.history.pc(call.end).map(|pc| Avma(pc.0.saturating_sub(1))),
            None => None,
        };
        Some(FrameKey {
            call: parent,
            chain: pc.map(|pc| self.lines.chain(pc)).unwrap_or_default(),
        })
    }

    /// The callee of `call` that `inner` is, or is inside of.
    pub(crate) fn child_around(&self, call: CallId, inner: CallId) -> Option<Call> {
        let mut at = self.forest.call(inner);
        loop {
            let parent = at.parent?;
            if parent == call {
                return Some(at);
            }
            at = self.forest.call(parent);
        }
    }

    fn stops_in(&self, index: u64, frame: FrameKey) -> Result<bool> {
        let Some(statement) = self.statement(index) else {
            return Ok(false);
        };
        Ok(self.lines.is_within(frame.chain, statement.chain) && self.is_start(index)?)
    }

    pub(crate) fn check(&self, index: u64) -> Result<()> {
        const OFTEN: u64 = 0xfff;
        if index & OFTEN == 0 {
            self.check_now()?;
        }
        Ok(())
    }

    pub(crate) fn check_now(&self) -> Result<()> {
        if self.watch.cancel.load(Ordering::Relaxed) {
            return Err(Error::Canceled);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
