//! The summary of a path's effects on the open calls.

use super::{Frame, NONE};
use crate::forest::code_sites::{CodeSite, CodeSites, FunctionIdx, SiteIdx};

/// The effects of a path on the open calls, and its exit. It fits a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::forest) struct PathSummary {
    /// Its first site, and the function of that site.
    pub first: SiteIdx,
    pub inside: FunctionIdx,
    /// The site after its last instruction.
    pub return_site: SiteIdx,
    /// The number of instructions.
    pub count: u32,
    /// The number of calls that start in it.
    pub begin: u32,
    pub end: PathExit,
    pub body: SummaryBody,
}

const _: () = assert!(size_of::<PathSummary>() == 64);

#[derive(Clone, Copy, Debug)]
pub(in crate::forest) enum SummaryBody {
    /// The path was not seen yet.
    Unknown,
    /// The path has no summary: the rules are applied each time.
    Irregular,
    Inline(InlineSummary),
    Spilled(SpilledSummary),
}

/// The summary of most paths.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct InlineSummary {
    /// The call that it returns from, if any, and the call in which it continues.
    pub levels: [FrameKey; 2],
    /// The calls left open, outermost first.
    pub open: [FrameKey; 2],
    /// Their numbers among the calls that start in the path.
    pub calls: [u8; 2],
    /// The number of calls returned from, and of calls left open.
    pub left: u8,
    pub opened: u8,
}

impl InlineSummary {
    /// No effect, in any call.
    pub const NOTHING: Self = Self {
        levels: [FrameKey::NONE; 2],
        open: [FrameKey::NONE; 2],
        calls: [0; 2],
        left: 0,
        opened: 0,
    };
}

/// The location of a summary that does not fit inline.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct SpilledSummary {
    /// The number of its first frame.
    pub first: u32,
    /// The number of frames for enclosing calls, and for calls left open.
    pub levels: u32,
    pub open: u32,
    /// The index of further conditions; [`NONE`]: there are none.
    pub more: u32,
}

/// A condition on a call, or a call left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct FrameKey {
    /// The site it returns to.
    pub returns_to: SiteIdx,
    /// Its function; [`FrameKey::ANY`].
    pub function: FunctionIdx,
}

impl FrameKey {
    /// Matches any function.
    pub const ANY: FunctionIdx = FunctionIdx(FunctionIdx::UNKNOWN.0 - 1);
    /// The key of no call.
    pub const NONE: Self = Self {
        returns_to: SiteIdx::NONE,
        function: Self::ANY,
    };

    #[inline(always)]
    pub(super) fn of(frame: &Frame) -> Self {
        Self {
            returns_to: frame.returns_to,
            function: frame.function,
        }
    }

    #[inline(always)]
    pub(super) fn fits(self, frame: &Frame) -> bool {
        (self.function == Self::ANY) | (self.function == frame.function)
    }

    /// Returns whether the frame fits and returns to the site.
    #[inline(always)]
    pub(super) fn is_left(self, frame: &Frame) -> bool {
        self.fits(frame) & (self.returns_to == frame.returns_to)
    }
}

/// The exit of a path: the transitions that have no further effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct PathExit(u8);

impl PathExit {
    const CALLS: u8 = 1;
    const RETURNS: u8 = 2;
    /// Stays in the same function.
    const STAYS: u8 = 4;
    /// Falls through to the next site.
    const FALLS: u8 = 8;
    /// The target is dynamic, and an open call may return there.
    const INDIRECT: u8 = 16;
    /// Leaves glue code between a call and the intended function.
    const GLUE: u8 = 32;

    pub const SEQUENTIAL: Self = Self(Self::FALLS);
    pub const CONDITIONAL: Self = Self(Self::FALLS | Self::STAYS);
    pub const JUMP: Self = Self(Self::STAYS);
    pub const INDIRECT_JUMP: Self = Self(Self::STAYS | Self::INDIRECT);
    pub const CALL: Self = Self(Self::CALLS);
    pub const RETURN: Self = Self(Self::RETURNS);
    pub const GLUE_JUMP: Self = Self(Self::GLUE);
    pub const INDIRECT_GLUE_JUMP: Self = Self(Self::GLUE | Self::INDIRECT);
    /// Any other exit.
    pub const OTHER: Self = Self(0);

    #[inline(always)]
    pub fn calls(self) -> bool {
        self.0 & Self::CALLS != 0
    }

    #[inline(always)]
    pub fn returns(self) -> bool {
        self.0 & Self::RETURNS != 0
    }

    #[inline(always)]
    fn is_indirect(self) -> bool {
        self.0 & Self::INDIRECT != 0
    }

    /// Returns whether it may jump to another function.
    #[inline(always)]
    pub fn jumps(self) -> bool {
        self.0 & Self::STAYS != 0
    }

    #[inline(always)]
    pub fn is_glue(self) -> bool {
        self.0 & Self::GLUE != 0
    }

    /// Returns whether the transition is one of these.
    #[inline(always)]
    fn allows(self, stays: bool, falls: bool, returns: bool) -> bool {
        let ways = (u8::from(!falls) * Self::CALLS)
            | (u8::from(returns) * Self::RETURNS)
            | (u8::from(stays) * Self::STAYS)
            | (u8::from(falls) * Self::FALLS);
        self.0 & ways != 0
    }
}

/// The parts of a spilled summary.
#[derive(Clone, Copy)]
pub(in crate::forest) struct SpilledParts<'a> {
    /// The calls that the path returns from, in order, and the one in which it continues.
    pub levels: &'a [Frame],
    /// The frames left open, outermost first. Their calls count from the first that starts in the
    /// path, their bases from the first of these frames. A base of [`NONE`] shares the return of
    /// the call in which the path continues.
    pub open: &'a [Frame],
    /// The new function of the innermost call.
    pub renamed_to: Option<CodeSite>,
    pub tails: &'a [TailJump],
}

/// A condition on an enclosing call.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct EnclosingCall {
    pub key: FrameKey,
    /// Whether the call must not share its return with a call below.
    pub unshared: bool,
}

impl EnclosingCall {
    /// Returns its stored form.
    pub fn frame(self) -> Frame {
        Frame {
            returns_to: self.key.returns_to,
            function: self.key.function,
            base: u32::from(self.unshared),
            call: NONE,
        }
    }

    #[inline(always)]
    pub(super) fn of(frame: &Frame) -> Self {
        Self {
            key: FrameKey::of(frame),
            unshared: frame.base != 0,
        }
    }
}

/// A function that is jumped to out of a call that was open before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct TailJump {
    /// The number of that call, the innermost first.
    pub level: usize,
    pub function: FunctionIdx,
}

/// The effect of a transition that the path's exit alone does not determine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenTransition {
    /// A tail call to the next path's function.
    TailCalls,
    /// The innermost call is one of the next path's function.
    Resolves,
}

impl PathSummary {
    /// The summary of a path not seen yet.
    pub const UNKNOWN: Self = Self {
        first: SiteIdx::NONE,
        inside: FunctionIdx::UNKNOWN,
        return_site: SiteIdx::NONE,
        count: 0,
        begin: 0,
        end: PathExit::OTHER,
        body: SummaryBody::Unknown,
    };

    /// Returns whether the summary must be determined.
    #[inline(always)]
    pub fn is_unknown(&self) -> bool {
        matches!(self.body, SummaryBody::Unknown)
    }

    /// Returns its first site.
    pub fn site(&self) -> CodeSite {
        CodeSite {
            id: self.first,
            function: self.inside,
        }
    }

    /// Returns whether the exit alone determines the transition, from an innermost call with this
    /// key.
    #[inline(always)]
    pub(super) fn transition_is_regular(&self, next: &Self, inner: FrameKey, sites: &CodeSites<'_>) -> bool {
        let stays = inner.function == next.inside;
        let (falls, returns) = (self.return_site == next.first, inner.returns_to == next.first);
        self.end.allows(stays, falls, returns)
            && !(self.end.is_indirect() && sites.may_be_returned_to(next.first))
    }

    /// Returns the effect of another transition, out of a call of this function; `in_chain` returns
    /// whether a function shares its return. `None`: it must be determined by the rules.
    #[inline]
    pub(super) fn open_transition(
        &self,
        next: &Self,
        function: FunctionIdx,
        sites: &CodeSites<'_>,
        in_chain: impl FnOnce(FunctionIdx) -> bool,
    ) -> Option<OpenTransition> {
        if self.end.is_indirect() && sites.may_be_returned_to(next.first) {
            return None;
        }
        let to = next.site();
        if self.end.is_glue() {
            let stays = to.is_known() && to.function == function || sites.contains(function, to);
            return (!stays).then_some(OpenTransition::Resolves);
        }
        (self.end.jumps() && self.tail_calls(to, function, sites) && !in_chain(to.function))
            .then_some(OpenTransition::TailCalls)
    }

    /// Returns whether a jump out of a function is a tail call, unless a call of the target's
    /// function shares the return.
    fn tail_calls(&self, to: CodeSite, function: FunctionIdx, sites: &CodeSites<'_>) -> bool {
        let was_inside = function != FunctionIdx::UNKNOWN;
        if sites.contains(function, to) {
            return false;
        }
        match to.is_known() {
            true => sites.is_start(to) || was_inside && !self.end.is_indirect(),
            false => was_inside,
        }
    }
}
