//! Line starts: the positions where stepping by lines stops. All line motions use this definition.
//!
//! - The **frame** of an instruction is the call that executes it (of the [`Forest`]), together
//!   with the inlined functions around its address. A frame is *within* another if it is that
//!   frame, a call made in it, or a function inlined into it, at any depth.
//! - A **statement instruction** is one that the line table assigns to a line as a statement,
//!   outside of a function's prologue ([`Lines::statement`]). Line motions ignore all others.
//! - The **predecessor** of a statement instruction is the preceding statement instruction of the
//!   same call, outside of functions inlined into its own frame. Instructions of callees do not
//!   count.
//! - A statement instruction is a **line start** if it has no predecessor, or if its frame or its
//!   line differs from its predecessor's.
//!
//! Line starts depend on the history alone, not on the current position. So `step` goes to the next
//! line start and `reverse-step` to the previous one, and the two visit the same ones in opposite
//! order. `next` and `reverse-next` choose among the line starts whose frame contains the current
//! frame, which excludes those in callees. A filter leaves out the line starts of libraries and of
//! skipped functions ([`StepFilter`]). Line starts do not depend on the filter.

mod begins;
mod copies;
mod filter;
mod frames;
mod own_instructions;
mod starts;
mod statements;

use crate::code::{ChainId, CodePoint, Lines, Statement};
use crate::error::{Error, Result};
use crate::session::begins_unseen;
use crate::skip::StepFilter;
use backtrail_decoder::{Call, CallId, Entered, Forest, History, Left, PcSet, Stage, Watch};
use backtrail_pt::{Avma, Cofi};
pub(crate) use begins::{Begin, BeginEvents, LastInstruction, scan_begins};
pub use copies::{CopyCode, Entrance};
pub(crate) use own_instructions::OwnInstructions;
pub use statements::Statements;
use std::ops::Range;

/// Finds line starts in one thread's history.
#[derive(Clone, Copy)]
pub struct LineStarts<'a> {
    /// The history.
    pub history: &'a History,
    /// There is older history, which is not decoded yet.
    pub is_partial: bool,
    /// Which call executed it.
    pub forest: &'a Forest,
    /// Which line it belongs to.
    pub lines: &'a dyn Lines,
    /// The instructions of the history that belong to statements.
    pub statements: &'a Statements,
    /// The code that a move passes over; `None`: none.
    pub filter: Option<&'a StepFilter>,
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
        let pc = self.history.instruction(index)?.pc;
        self.lines.statement(self.point(index, pc))
    }

    /// Returns the point of an address at instruction `index`.
    pub(crate) fn point(&self, index: u64, pc: Avma) -> CodePoint {
        let epoch = match self.lines.epochs() {
            1 => 0,
            _ => self.lines.epoch_at(self.history.version(index)),
        };
        CodePoint { pc, epoch }
    }

    /// Returns the point of an address in a call. Its module stays mapped while the call runs.
    pub(crate) fn point_in(&self, call: CallId, pc: Avma) -> CodePoint {
        self.point(self.forest.call(call).first, pc)
    }

    /// Returns the frame of instruction `index`; at the end of history, the frame of the thread's
    /// position.
    #[must_use]
    pub fn frame(&self, index: u64) -> Option<FrameKey> {
        let call = self.forest.call_at(index)?;
        if let Some(instruction) = self.history.instruction(index) {
            return Some(FrameKey {
                call,
                chain: self.lines.chain(self.point(index, instruction.pc)),
            });
        }
        let last = self.history.instruction(index.checked_sub(1)?)?;
        let chain = self.lines.chain(self.point(index, last.pc));
        let stood = self
            .history
            .pc(index)
            .map(|pc| self.lines.chain(self.point(index, pc)));
        let related =
            |stood: &ChainId| self.lines.is_within(*stood, chain) || self.lines.is_within(chain, *stood);
        let stayed =
            stood.filter(|stood| last.cofi != Cofi::Return && !last.cofi.is_call() && related(stood));
        Some(FrameKey {
            call,
            chain: stayed.unwrap_or(chain),
        })
    }

    /// Returns whether stepping by lines stops at instruction `index`.
    ///
    /// # Errors
    ///
    /// If a predecessor may be in history that is not decoded yet; when canceled.
    pub fn is_start(&self, index: u64) -> Result<bool> {
        let Some(statement) = self.statement(index) else {
            return Ok(false);
        };
        let Some(id) = self.forest.call_at(index) else {
            return Ok(false);
        };
        let precedes = |pc: Avma| {
            let candidate = self.lines.statement(self.point_in(id, pc));
            candidate.is_some_and(|candidate| {
                candidate.chain == statement.chain || !self.lines.is_within(candidate.chain, statement.chain)
            })
        };
        match OwnInstructions::new(self, id, index, precedes).previous(0)? {
            Some(predecessor) => Ok(self.statement(predecessor) != Some(statement)),
            None => {
                self.needs_beginning(id)?;
                Ok(true)
            }
        }
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
            // Instructions outside of callees, which should not exist, are passed one by one.
            at = self
                .child_around(call, here)
                .map_or(at - 1, |child| child.first.min(at - 1));
        }
        None
    }

    /// Returns the end of an execution whose last own instruction before `limit` is `last`. The end
    /// is after the calls that this instruction made.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub(crate) fn end_after(&self, call: CallId, last: u64, limit: u64) -> Result<u64> {
        let after = last.saturating_add(1);
        let next = OwnInstructions::new(self, call, after, |_| true).next(limit)?;
        Ok(next.unwrap_or_else(|| limit.max(after)))
    }

    /// Returns the addresses that a call can have executed itself.
    ///
    /// These are the addresses of its function. For a function without a symbol, they are the
    /// addresses of its module that have lines and no symbol.
    pub(crate) fn code_of(&self, call: CallId) -> PcSet {
        let function = self.forest.call(call).function;
        let point = self.point_in(call, function);
        let parts = self.lines.function(point);
        if !parts.is_empty() {
            return PcSet::from_ranges(parts);
        }
        match self.lines.module(point) {
            Some(module) => self.nameless().within(module),
            None => self.nameless().clone(),
        }
    }

    /// Checks that the beginning of a call is decoded.
    ///
    /// # Errors
    ///
    /// [`Error::Earlier`] if it is not decoded yet.
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
            // The call is not in the history, but the return from it is, to the instruction after
            // it.
            None if adopted => self.history.pc(call.end).map(|pc| Avma(pc.0.saturating_sub(1))),
            None => None,
        };
        Some(FrameKey {
            call: parent,
            chain: pc
                .map(|pc| self.lines.chain(self.point(call.first, pc)))
                .unwrap_or_default(),
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

    /// Reports the progress of a search from one index to another, periodically.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub(crate) fn passed(&self, from: u64, index: u64) -> Result<()> {
        const OFTEN: u64 = 0xfff;
        match index & OFTEN {
            0 => self.report(from, index),
            _ => Ok(()),
        }
    }

    /// The same, before a search by the index of the history.
    ///
    /// # Errors
    /// When canceled.
    pub(crate) fn before_search(&self, from: u64, index: u64) -> Result<()> {
        self.history.prepare_searches(self.watch)?;
        self.report(from, index)
    }

    fn report(&self, from: u64, index: u64) -> Result<()> {
        let all = match index < from {
            true => from,
            false => self.history.len().saturating_sub(from),
        };
        Ok(self
            .watch
            .report(Stage::Search, index.abs_diff(from), all.max(1))?)
    }
}

/// Returns the wanted addresses of an ascending list. The set may include addresses between two
/// consecutive ones.
fn runs(pcs: &[Avma], wanted: impl Fn(Avma) -> bool) -> PcSet {
    let mut ranges: Vec<Range<Avma>> = Vec::new();
    let mut goes_on = false;
    for &pc in pcs.iter().filter(|pc| pc.0 != u64::MAX) {
        let is_wanted = wanted(pc);
        match ranges.last_mut() {
            Some(last) if is_wanted && goes_on => last.end = pc + 1,
            _ if is_wanted => ranges.push(pc..pc + 1),
            _ => {}
        }
        goes_on = is_wanted;
    }
    PcSet::from_ranges(ranges)
}

#[cfg(test)]
mod tests;
