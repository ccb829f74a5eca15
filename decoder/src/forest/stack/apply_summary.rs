//! Applies path summaries to the open calls.

use super::path_summary::{
    EnclosingCall, FrameKey, InlineSummary, OpenTransition, PathSummary, SpilledParts, TailJump,
};
use super::{Frame, NONE, Stack};
use crate::forest::code_sites::{CodeSites, FunctionIdx};
use crate::forest::effects::EffectStore;

/// The most frames of a chain of tail calls to search. This bounds the work of each application.
const MOST_SHARING: usize = 64;

/// The context of an application.
pub(in crate::forest) struct SummaryCtx<'a, 'p> {
    pub execution: u64,
    pub effects: &'a mut EffectStore,
    pub sites: &'a CodeSites<'p>,
}

impl Stack {
    /// Applies an inline summary and the transition to the next path, if the open calls meet its
    /// conditions. Returns whether it did.
    #[inline(always)]
    pub fn apply_inline(
        &mut self,
        summary: &PathSummary,
        inline: &InlineSummary,
        next: &PathSummary,
        ctx: &mut SummaryCtx<'_, '_>,
    ) -> bool {
        let len = self.frames.len();
        let Some(top) = self.frames.last() else {
            return false;
        };
        let (mut low, mut frame) = (len, top);
        let [outer, mut stays] = inline.levels;
        if inline.left == 0 {
            stays = outer;
        } else {
            low = top.base as usize;
            let Some(below) = self.frames.get(low.wrapping_sub(1)) else {
                return false;
            };
            if !outer.is_left(top) {
                return false;
            }
            frame = below;
        }
        if !stays.fits(frame) {
            return false;
        }
        let inner = match inline.opened {
            0 => FrameKey::of(frame),
            1 => inline.open[0],
            _ => inline.open[1],
        };
        let mut open_transition = None;
        if !summary.transition_is_regular(next, inner, ctx.sites) {
            let in_chain = |function| inline.opened == 0 && self.shares_with(low, function);
            open_transition = summary.open_transition(next, inner.function, ctx.sites, in_chain);
            if open_transition.is_none() {
                return false;
            }
        }
        if inline.left > 0 {
            self.leave(low, 0, ctx);
        }
        if inline.opened > 0 {
            self.open_inline(inline.open[0], inline.calls[0]);
            if inline.opened > 1 {
                self.open_inline(inline.open[1], inline.calls[1]);
            }
        }
        self.began += summary.begin;
        match open_transition {
            None => self.apply_transition(summary, next, u32::from(inline.left), ctx),
            Some(open_transition) => {
                self.apply_open_transition(open_transition, next, inline.opened > 0, ctx)
            }
        }
        true
    }

    #[inline(always)]
    fn open_inline(&mut self, key: FrameKey, call: u8) {
        self.frames.push(Frame {
            returns_to: key.returns_to,
            function: key.function,
            base: self.frames.len() as u32,
            call: self.began + u32::from(call),
        });
    }

    /// Returns whether the innermost of the outermost `len` calls is of this function, or shares
    /// its return with one that is.
    #[cold]
    fn shares_with(&self, len: usize, function: FunctionIdx) -> bool {
        let Some(frame) = len.checked_sub(1).and_then(|at| self.frames.get(at)) else {
            return true;
        };
        let sharing = self.frames.get(frame.base as usize..len).unwrap_or(&[]);
        function != FunctionIdx::UNKNOWN
            && (sharing.len() > MOST_SHARING || sharing.iter().any(|frame| frame.function == function))
    }

    /// Ends the calls from a frame on, by the leave of this number.
    #[inline(always)]
    fn leave(&mut self, low: usize, leave: u32, ctx: &mut SummaryCtx<'_, '_>) {
        let calls = self.frames.len() - low;
        if calls != 1 {
            ctx.effects.leave(ctx.execution, leave, calls as u32);
        }
        if self.links.len() > low {
            self.unlink_from(low);
        }
        self.frames.truncate(low);
        self.lowest = self.lowest.min(self.depth());
    }

    /// Removes the frames from one on from the lists.
    #[cold]
    fn unlink_from(&mut self, low: usize) {
        while self.links.len() > low {
            let last = self.links.len() - 1;
            let Some(&frame) = self.frames.get(last) else {
                return;
            };
            self.unlink_last(&frame);
        }
    }

    /// Applies the transition that the path's exit determines; `leave` is the number of the leave
    /// that it may be.
    #[inline(always)]
    fn apply_transition(
        &mut self,
        summary: &PathSummary,
        next: &PathSummary,
        leave: u32,
        ctx: &mut SummaryCtx<'_, '_>,
    ) {
        if summary.end.calls() {
            self.frames.push(Frame {
                returns_to: summary.return_site,
                function: next.inside,
                base: self.frames.len() as u32,
                call: self.began,
            });
            self.began += 1;
        } else if summary.end.returns() {
            self.leave_innermost(leave, ctx);
        }
    }

    /// Applies an open transition; `opened`: the innermost call was opened by the path.
    #[inline]
    fn apply_open_transition(
        &mut self,
        open_transition: OpenTransition,
        next: &PathSummary,
        opened: bool,
        ctx: &mut SummaryCtx<'_, '_>,
    ) {
        match (open_transition, self.frames.last_mut()) {
            (OpenTransition::TailCalls, Some(&mut top)) => {
                self.frames.push(Frame {
                    function: next.inside,
                    call: self.began,
                    ..top
                });
                self.began += 1;
                ctx.effects.tail_call(ctx.execution);
            }
            (OpenTransition::Resolves, Some(top)) if opened => top.function = next.inside,
            (OpenTransition::Resolves, _) => self.rename(next.site()),
            (OpenTransition::TailCalls, None) => {}
        }
    }

    /// Ends the innermost call and all that share its return.
    #[inline(always)]
    fn leave_innermost(&mut self, leave: u32, ctx: &mut SummaryCtx<'_, '_>) {
        let base = self.frames.last().map_or(0, |frame| frame.base);
        self.leave(base as usize, leave, ctx);
    }

    /// Like [`Self::apply_inline`], for a spilled summary.
    #[inline(never)]
    pub fn apply_spilled(
        &mut self,
        summary: &PathSummary,
        spilled: &SpilledParts<'_>,
        next: &PathSummary,
        ctx: &mut SummaryCtx<'_, '_>,
    ) -> bool {
        let Some(low) = self.low(spilled) else {
            return false;
        };
        let Some(&sharing) = low.checked_sub(1).and_then(|at| self.frames.get(at)) else {
            return false;
        };
        let left = spilled.levels.len().saturating_sub(1);
        let inner = match (spilled.open.last(), spilled.renamed_to) {
            (Some(open), _) => FrameKey {
                returns_to: match open.base {
                    NONE => sharing.returns_to,
                    _ => open.returns_to,
                },
                function: open.function,
            },
            (None, Some(to)) if left == 0 => FrameKey {
                function: to.function,
                ..FrameKey::of(&sharing)
            },
            (None, _) => FrameKey::of(&sharing),
        };
        let in_chain_below = |function| {
            spilled.renamed_to.is_some_and(|to| to.function == function) || self.shares_with(low, function)
        };
        let in_chain = |function| match spilled.open.last() {
            None => in_chain_below(function),
            Some(last) => {
                let shares = |open: &Frame| open.base == last.base && open.function == function;
                spilled.open.iter().any(shares) || last.base == NONE && in_chain_below(function)
            }
        };
        let mut open_transition = None;
        if !summary.transition_is_regular(next, inner, ctx.sites) {
            open_transition = summary.open_transition(next, inner.function, ctx.sites, in_chain);
            if open_transition.is_none() {
                return false;
            }
        }
        if let Some(to) = spilled.renamed_to {
            self.rename(to);
        }
        for leave in 0..left {
            self.leave_innermost(leave as u32, ctx);
        }
        let began = self.began;
        self.frames.extend(spilled.open.iter().map(|&open| {
            let (returns_to, base) = match open.base {
                NONE => (sharing.returns_to, sharing.base),
                base => (open.returns_to, base + low as u32),
            };
            Frame {
                returns_to,
                base,
                call: began + open.call,
                function: open.function,
            }
        }));
        self.began += summary.begin;
        match open_transition {
            None => self.apply_transition(summary, next, left as u32, ctx),
            Some(open_transition) => {
                self.apply_open_transition(open_transition, next, !spilled.open.is_empty(), ctx)
            }
        }
        true
    }

    /// Returns the number of frames that stay, if the open calls meet the conditions of a summary.
    fn low(&self, spilled: &SpilledParts<'_>) -> Option<usize> {
        let mut len = self.frames.len();
        for (number, level) in spilled.levels.iter().enumerate() {
            let level = EnclosingCall::of(level);
            let at = len.checked_sub(1)?;
            let frame = self.frames.get(at)?;
            let is_last = number + 1 == spilled.levels.len();
            let fits = match is_last {
                true => level.key.fits(frame),
                false => level.key.is_left(frame),
            };
            let base = frame.base as usize;
            if !fits || level.unshared && base != at && !self.may_share(base..at + 1, number, spilled) {
                return None;
            }
            if is_last {
                return Some(len);
            }
            len = base;
        }
        None
    }

    /// Returns whether frames may share a return although the summary was made for a single one.
    /// None of them may be of a function that the path jumps to from there: that jump would return
    /// to it.
    fn may_share(&self, frames: std::ops::Range<usize>, level: usize, spilled: &SpilledParts<'_>) -> bool {
        let sharing = self.frames.get(frames).unwrap_or(&[]);
        let jumps = |function| spilled.tails.contains(&TailJump { level, function });
        !spilled.tails.is_empty()
            && sharing.len() <= MOST_SHARING
            && !sharing.iter().any(|frame| jumps(frame.function))
            && !spilled.renamed_to.is_some_and(|to| jumps(to.function))
    }
}
