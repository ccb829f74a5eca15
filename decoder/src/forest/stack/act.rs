//! What paths do to the open calls, as far as it is known beforehand.

use super::{Frame, NONE};
use crate::forest::places::{Place, Places};

/// What an execution of a path does, as far as it is known beforehand, and how it goes on: one cache line, in which all is that is
/// asked most often.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::forest) struct Act {
    /// The number of its first place, and of the function that it is in.
    pub first: u32,
    pub inside: u32,
    /// The number of the place behind its last instruction.
    pub behind: u32,
    /// Its instructions.
    pub count: u32,
    /// How many calls begin in it.
    pub begin: u32,
    pub end: End,
    pub does: Does,
}

const _: () = assert!(size_of::<Act>() == 64);

#[derive(Clone, Copy, Debug)]
pub(in crate::forest) enum Does {
    /// The path was not met yet.
    Unknown,
    /// It is not known beforehand.
    Never,
    Near(Near),
    Far(Far),
}

/// What most paths do.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Near {
    /// The call that it returns from, if it does, and the one that it goes on in.
    pub levels: [Key; 2],
    /// What it calls and leaves open, outermost first.
    pub open: [Key; 2],
    /// Which of those that begin in it are left open.
    pub calls: [u8; 2],
    /// How many calls it returns from, and leaves open.
    pub left: u8,
    pub opened: u8,
}

impl Near {
    /// Nothing, in any call.
    pub const NOTHING: Self = Self {
        levels: [Key::NONE; 2],
        open: [Key::NONE; 2],
        calls: [0; 2],
        left: 0,
        opened: 0,
    };
}

/// Where it is told what others do.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Far {
    /// The number of the first of its frames.
    pub first: u32,
    /// How many of them are calls that it returns from, and the one that it goes on in; and how many it leaves open.
    pub levels: u32,
    pub open: u32,
    /// The number of what else there is to ask; [`NONE`]: there is nothing.
    pub more: u32,
}

/// A call that a path is in, or leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct Key {
    /// The number of the place where it returns to.
    pub returns_to: u32,
    /// It is one of this function; [`Key::ANY`].
    pub function: u32,
}

impl Key {
    /// The number of no function: it may be any.
    pub const ANY: u32 = Place::UNKNOWN - 1;
    /// That of no call.
    pub const NONE: Self = Self {
        returns_to: NONE,
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

    /// The same, and it returns there.
    #[inline(always)]
    pub(super) fn is_left(self, frame: &Frame) -> bool {
        self.fits(frame) & (self.returns_to == frame.returns_to)
    }
}

/// How a path ends: what the way to the next may be, for nothing but what is known beforehand to come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct End(u8);

impl End {
    const CALLS: u8 = 1;
    const RETURNS: u8 = 2;
    /// Into the same function.
    const STAYS: u8 = 4;
    /// To the place behind.
    const FALLS: u8 = 8;
    /// The target is told each time, and an open call may return there.
    const TOLD: u8 = 16;
    /// From between a call and the function meant, which is not known before.
    const GLUE: u8 = 32;

    pub const SEQUENTIAL: Self = Self(Self::FALLS);
    pub const CONDITIONAL: Self = Self(Self::FALLS | Self::STAYS);
    pub const JUMP: Self = Self(Self::STAYS);
    pub const INDIRECT_JUMP: Self = Self(Self::STAYS | Self::TOLD);
    pub const CALL: Self = Self(Self::CALLS);
    pub const RETURN: Self = Self(Self::RETURNS);
    pub const GLUE_JUMP: Self = Self(Self::GLUE);
    pub const INDIRECT_GLUE_JUMP: Self = Self(Self::GLUE | Self::TOLD);
    /// By what may do anything.
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
    fn is_told(self) -> bool {
        self.0 & Self::TOLD != 0
    }

    /// It may jump to another function.
    #[inline(always)]
    pub fn jumps(self) -> bool {
        self.0 & Self::STAYS != 0
    }

    #[inline(always)]
    pub fn is_glue(self) -> bool {
        self.0 & Self::GLUE != 0
    }

    /// The way to the next path is one of these.
    #[inline(always)]
    fn allows(self, stays: bool, falls: bool, returns: bool) -> bool {
        let ways = (u8::from(!falls) * Self::CALLS)
            | (u8::from(returns) * Self::RETURNS)
            | (u8::from(stays) * Self::STAYS)
            | (u8::from(falls) * Self::FALLS);
        self.0 & ways != 0
    }
}

/// What a path does that is not near.
#[derive(Clone, Copy)]
pub(in crate::forest) struct Deed<'a> {
    /// The calls that it returns from, one after the other, and the one that it goes on in.
    pub levels: &'a [Frame],
    /// What it calls and leaves open, outermost first: frames that lie ready. Their calls are counted from the first that begins, their
    /// bases from the first that lies ready with them; [`NONE`] where one shares the return of the call that the path goes on in.
    pub open: &'a [Frame],
    /// The innermost call turns out to be one of the function that begins there.
    pub renames: Option<Place>,
    pub tails: &'a [Tail],
}

/// A call that a path is in.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Level {
    pub key: Key,
    /// It has to share its return with no call below.
    pub alone: bool,
}

impl Level {
    /// As it is kept.
    pub fn frame(self) -> Frame {
        Frame {
            returns_to: self.key.returns_to,
            function: self.key.function,
            base: u32::from(self.alone),
            call: NONE,
        }
    }

    #[inline(always)]
    pub(super) fn of(frame: &Frame) -> Self {
        Self {
            key: Key::of(frame),
            alone: frame.base != 0,
        }
    }
}

/// A function that is jumped to out of a call that was open before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct Tail {
    /// The level of that call, the innermost first.
    pub level: usize,
    pub function: u32,
}

/// What may come of the way to the next path that the end of this one does not tell by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Onward {
    /// The next path begins a function that is jumped to.
    TailCalls,
    /// The innermost call turns out to be one of the function that the next path begins.
    Resolves,
}

impl Act {
    /// That of a path that was not met yet.
    pub const UNKNOWN: Self = Self {
        first: NONE,
        inside: Place::UNKNOWN,
        behind: NONE,
        count: 0,
        begin: 0,
        end: End::OTHER,
        does: Does::Unknown,
    };

    /// The path was not met yet, or has to be found out anew.
    #[inline(always)]
    pub fn is_unknown(&self) -> bool {
        matches!(self.does, Does::Unknown)
    }

    /// Its first place.
    pub fn place(&self) -> Place {
        Place {
            id: self.first,
            function: self.inside,
        }
    }

    /// What comes of the way to the next path is what the end tells, out of a call that returns there and is of this function.
    #[inline(always)]
    pub(super) fn goes_on(&self, next: &Self, inner: Key, places: &Places<'_>) -> bool {
        let stays = inner.function == next.inside;
        let (falls, returns) = (self.behind == next.first, inner.returns_to == next.first);
        self.end.allows(stays, falls, returns)
            && !(self.end.is_told() && places.may_be_returned_to(next.first))
    }

    /// What comes of it otherwise, where the innermost call is of this function, and those that share its return are of those that are `run`.
    /// `None`: that is not known beforehand.
    #[inline]
    pub(super) fn onward(
        &self,
        next: &Self,
        function: u32,
        places: &Places<'_>,
        runs: impl FnOnce(u32) -> bool,
    ) -> Option<Onward> {
        if self.end.is_told() && places.may_be_returned_to(next.first) {
            return None;
        }
        let to = next.place();
        if self.end.is_glue() {
            let stays = to.is_known() && to.function == function || places.contains(function, to);
            return (!stays).then_some(Onward::Resolves);
        }
        (self.end.jumps() && self.tail_calls(to, function, places) && !runs(to.function))
            .then_some(Onward::TailCalls)
    }

    /// A jump to a place out of a function, in which it does not stay, is a call, unless one of the same function shares the return.
    fn tail_calls(&self, to: Place, function: u32, places: &Places<'_>) -> bool {
        let was_inside = function != Place::UNKNOWN;
        if places.contains(function, to) {
            return false;
        }
        match to.is_known() {
            true => places.is_start(to) || was_inside && !self.end.is_told(),
            false => was_inside,
        }
    }
}
