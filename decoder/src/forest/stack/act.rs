//! What a path does to the open calls at once, where they are such as it is meant for.

use super::{Frame, NONE, Stack};
use crate::forest::effects::Effects;
use crate::forest::places::{Place, Places};

/// What an execution of a path does, as far as it is known beforehand, and how it goes on. What is asked of it each time is in one
/// cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::forest) struct Act {
    /// The call that it returns from, if it does, and the one that it goes on in.
    pub levels: [Key; 2],
    /// What it calls and leaves open, outermost first.
    pub open: [Key; 2],
    /// The number of its first place, and of the function that it is in.
    pub first: u32,
    pub inside: u32,
    /// The number of the place behind its last instruction.
    pub behind: u32,
    /// Its instructions.
    pub count: u32,
    /// How many calls begin in it.
    pub begin: u32,
    /// The number of what is not here, where that is anything.
    pub rest: u32,
    /// How many calls it returns from, and leaves open.
    pub left: u8,
    pub opened: u8,
    pub end: End,
    pub reach: Reach,
    /// Which of those that begin in it are left open.
    pub calls: [u8; 2],
}

const _: () = assert!(size_of::<Act>() == 64);

/// How much there is to ask of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) enum Reach {
    /// The path was not met yet.
    Unknown,
    /// All is in the act.
    Near,
    /// There is more, see [`Far`].
    Far,
    /// What it does is not known beforehand.
    Never,
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
    fn fits(self, frame: &Frame) -> bool {
        (self.function == Self::ANY) | (self.function == frame.function)
    }

    /// The same, and it returns there.
    #[inline(always)]
    fn is_left(self, frame: &Frame) -> bool {
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
    /// From between a call and the function meant.
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

/// What there is to ask of an act that is not near.
#[derive(Clone, Copy)]
pub(in crate::forest) struct Far<'a> {
    /// The calls that it returns from, one after the other, and the one that it goes on in.
    pub levels: &'a [Level],
    /// What it calls and leaves open, outermost first.
    pub open: &'a [Open],
    /// The innermost call turns out to be one of the function that begins there.
    pub renames: Option<Place>,
    pub tails: &'a [Tail],
}

#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Level {
    pub key: Key,
    /// It has to share its return with no call below.
    pub alone: bool,
}

/// A function that is jumped to out of a call that was open before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct Tail {
    /// The level of that call, the innermost first.
    pub level: usize,
    pub function: u32,
}

/// A frame that lies ready: its call is counted from the first that begins, its base from the first that lies ready with it,
/// [`NONE`] where it shares the return of the call that the path goes on in.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Open(pub Frame);

impl Open {
    /// Where it returns to, and its function; `sharing` is what it may share its return with.
    #[inline]
    fn key(&self, sharing: &Frame) -> Key {
        let Self(open) = self;
        Key {
            returns_to: match open.base {
                NONE => sharing.returns_to,
                _ => open.returns_to,
            },
            function: open.function,
        }
    }
}

/// The most calls that may share a return for them to be looked at: bounds the work of each time.
const MOST_SHARING: usize = 64;

/// Who an act is performed for.
pub(in crate::forest) struct Round<'a, 'p> {
    pub execution: u64,
    pub effects: &'a mut Effects,
    pub places: &'a Places<'p>,
}

impl Act {
    /// That of a path that was not met yet.
    pub const UNKNOWN: Self = Self {
        levels: [Key::NONE; 2],
        open: [Key::NONE; 2],
        first: NONE,
        inside: Place::UNKNOWN,
        behind: NONE,
        count: 0,
        begin: 0,
        rest: NONE,
        left: 0,
        opened: 0,
        end: End::OTHER,
        reach: Reach::Unknown,
        calls: [0; 2],
    };

    /// It is known beforehand what the way to the next path does, out of a call that returns there and is of this function.
    #[inline(always)]
    fn may_go_on(&self, next: &Self, inner: Key, places: &Places<'_>) -> bool {
        let stays = inner.function == next.inside;
        let (falls, returns) = (self.behind == next.first, inner.returns_to == next.first);
        self.end.allows(stays, falls, returns)
            && !(self.end.is_told() && places.may_be_returned_to(next.first))
    }

    /// The way to the next path, from glue in a function, is one to the function meant; `None`: that is not known beforehand.
    fn resolves(&self, next: &Self, function: u32, places: &Places<'_>) -> Option<bool> {
        if self.end.is_told() && places.may_be_returned_to(next.first) {
            return None;
        }
        let to = next.place();
        let stays = to.is_known() && to.function == function || places.contains(function, to);
        Some(!stays)
    }

    /// Its first place.
    pub fn place(&self) -> Place {
        Place {
            id: self.first,
            function: self.inside,
        }
    }
}

impl Frame {
    #[inline(always)]
    fn key(&self) -> Key {
        Key {
            returns_to: self.returns_to,
            function: self.function,
        }
    }
}

impl Stack {
    /// Does what an act does that is near, and what the way to the next path does, if the open calls are those that it is meant for.
    /// Says whether it did.
    #[inline(always)]
    pub fn perform_near(&mut self, act: &Act, next: &Act, round: &mut Round<'_, '_>) -> bool {
        let len = self.frames.len();
        let Some(top) = self.frames.last() else {
            return false;
        };
        let (mut low, mut frame) = (len, top);
        let [outer, mut stays] = [act.levels[0], act.levels[1]];
        if act.left == 0 {
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
        let inner = match act.opened {
            0 => frame.key(),
            1 => act.open[0],
            _ => act.open[1],
        };
        if !act.may_go_on(next, inner, round.places) {
            return false;
        }
        if act.left > 0 {
            self.leave(low, 0, round);
        }
        if act.opened > 0 {
            self.open_near(act.open[0], act.calls[0]);
            if act.opened > 1 {
                self.open_near(act.open[1], act.calls[1]);
            }
        }
        self.began += act.begin;
        self.go_on(act, next, u32::from(act.left), round);
        true
    }

    #[inline(always)]
    fn open_near(&mut self, key: Key, call: u8) {
        self.frames.push(Frame {
            returns_to: key.returns_to,
            function: key.function,
            base: self.frames.len() as u32,
            call: self.began + u32::from(call),
        });
    }

    /// The calls from a frame on end, by the leave of this number.
    #[inline(always)]
    fn leave(&mut self, low: usize, leave: u32, round: &mut Round<'_, '_>) {
        let calls = self.frames.len() - low;
        if calls != 1 {
            round.effects.leave(round.execution, leave, calls as u32);
        }
        if self.links.len() > low {
            self.unlink_from(low);
        }
        self.frames.truncate(low);
        self.lowest = self.lowest.min(self.depth());
    }

    /// Takes the frames from one on out of the lists.
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

    /// The way to the next path; `leave` is the number of the leave that it may be.
    #[inline(always)]
    fn go_on(&mut self, act: &Act, next: &Act, leave: u32, round: &mut Round<'_, '_>) {
        if act.end.calls() {
            self.frames.push(Frame {
                returns_to: act.behind,
                function: next.inside,
                base: self.frames.len() as u32,
                call: self.began,
            });
            self.began += 1;
        } else if act.end.returns() {
            self.leave_innermost(leave, round);
        }
    }

    /// The innermost call ends, and with it all that share its return.
    #[inline(always)]
    fn leave_innermost(&mut self, leave: u32, round: &mut Round<'_, '_>) {
        let base = self.frames.last().map_or(0, |frame| frame.base);
        self.leave(base as usize, leave, round);
    }

    /// The same for any act.
    #[inline(never)]
    pub fn perform_far(&mut self, act: &Act, far: &Far<'_>, next: &Act, round: &mut Round<'_, '_>) -> bool {
        let Some(low) = self.low(far) else {
            return false;
        };
        let Some(frame) = low.checked_sub(1).and_then(|at| self.frames.get(at)) else {
            return false;
        };
        let sharing = *frame;
        let left = far.levels.len().saturating_sub(1);
        let inner = match (far.open.last(), far.renames) {
            (Some(open), _) => open.key(&sharing),
            (None, Some(to)) if left == 0 => Key {
                function: to.function,
                ..sharing.key()
            },
            (None, _) => sharing.key(),
        };
        let resolves = match act.end.is_glue() {
            true => act.resolves(next, inner.function, round.places),
            false => act.may_go_on(next, inner, round.places).then_some(false),
        };
        let Some(resolves) = resolves else {
            return false;
        };
        if let Some(to) = far.renames {
            self.rename(to);
        }
        for leave in 0..left {
            self.leave_innermost(leave as u32, round);
        }
        for &Open(mut open) in far.open {
            open.call += self.began;
            if open.base == NONE {
                (open.returns_to, open.base) = (sharing.returns_to, sharing.base);
            } else {
                open.base += low as u32;
            }
            self.frames.push(open);
        }
        self.began += act.begin;
        self.go_on(act, next, left as u32, round);
        if resolves {
            self.rename(next.place());
        }
        true
    }

    /// How many frames stay, if the open calls are those that an act is meant for.
    fn low(&self, far: &Far<'_>) -> Option<usize> {
        let mut len = self.frames.len();
        for (number, level) in far.levels.iter().enumerate() {
            let at = len.checked_sub(1)?;
            let frame = self.frames.get(at)?;
            let goes_on = number + 1 == far.levels.len();
            let fits = match goes_on {
                true => level.key.fits(frame),
                false => level.key.is_left(frame),
            };
            let base = frame.base as usize;
            if !fits || level.alone && base != at && !self.may_share(base..at + 1, number, far.tails) {
                return None;
            }
            if goes_on {
                return Some(len);
            }
            len = base;
        }
        None
    }

    /// Frames that share a return may be where one is meant that shares it with none: as long as they are of no function that is jumped
    /// to out of it. Then none of them is jumped back into.
    fn may_share(&self, frames: std::ops::Range<usize>, level: usize, tails: &[Tail]) -> bool {
        let sharing = self.frames.get(frames).unwrap_or(&[]);
        let jumps = |function| tails.contains(&Tail { level, function });
        !tails.is_empty()
            && sharing.len() <= MOST_SHARING
            && !sharing.iter().any(|frame| jumps(frame.function))
    }
}
