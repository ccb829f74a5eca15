//! What a path does to the open calls at once, where they are such as it is meant for.

use super::{Frame, NONE, Stack};
use crate::forest::effects::Effects;
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
    fn of(frame: &Frame) -> Self {
        Self {
            key: frame.key(),
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

/// The most calls that may share a return for them to be looked at: bounds the work of each time.
const MOST_SHARING: usize = 64;

/// Who an act is performed for.
pub(in crate::forest) struct Round<'a, 'p> {
    pub execution: u64,
    pub effects: &'a mut Effects,
    pub places: &'a Places<'p>,
}

/// What comes of the way to the next path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Onward {
    Nothing,
    Calls,
    Returns,
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

    /// What comes of the way to the next path out of a call that returns there and is of this function, and may share its return with those
    /// below, which run these functions. `None`: that is not known beforehand.
    #[inline(always)]
    fn onward(
        &self,
        next: &Self,
        inner: Key,
        places: &Places<'_>,
        runs: impl FnOnce(u32) -> bool,
    ) -> Option<Onward> {
        let stays = inner.function == next.inside;
        let (falls, returns) = (self.behind == next.first, inner.returns_to == next.first);
        if self.end.is_told() && places.may_be_returned_to(next.first) {
            return None;
        }
        if self.end.allows(stays, falls, returns) {
            return Some(match self.end {
                end if end.calls() => Onward::Calls,
                end if end.returns() => Onward::Returns,
                _ => Onward::Nothing,
            });
        }
        let to = next.place();
        if self.end.is_glue() {
            let stays = stays && to.is_known() || places.contains(inner.function, to);
            return (!stays).then_some(Onward::Resolves);
        }
        (self.end.jumps() && self.tail_calls(to, inner.function, places) && !runs(to.function))
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
    pub fn perform_near(&mut self, act: &Act, near: &Near, next: &Act, round: &mut Round<'_, '_>) -> bool {
        let len = self.frames.len();
        let Some(top) = self.frames.last() else {
            return false;
        };
        let (mut low, mut frame) = (len, top);
        let [outer, mut stays] = near.levels;
        if near.left == 0 {
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
        let inner = match near.opened {
            0 => frame.key(),
            1 => near.open[0],
            _ => near.open[1],
        };
        let runs = |function| near.opened == 0 && self.shares_with(low, function);
        let Some(onward) = act.onward(next, inner, round.places, runs) else {
            return false;
        };
        if near.left > 0 {
            self.leave(low, 0, round);
        }
        if near.opened > 0 {
            self.open_near(near.open[0], near.calls[0]);
            if near.opened > 1 {
                self.open_near(near.open[1], near.calls[1]);
            }
        }
        self.began += act.begin;
        self.go_on(act, next, onward, u32::from(near.left), near.opened > 0, round);
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

    /// The innermost of the outermost `len` calls is one of this function, or shares its return with one.
    #[cold]
    fn shares_with(&self, len: usize, function: u32) -> bool {
        let Some(frame) = len.checked_sub(1).and_then(|at| self.frames.get(at)) else {
            return true;
        };
        let sharing = self.frames.get(frame.base as usize..len).unwrap_or(&[]);
        function != Place::UNKNOWN
            && (sharing.len() > MOST_SHARING || sharing.iter().any(|frame| frame.function == function))
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

    /// The way to the next path; `leave` is the number of the leave that it may be; the path `opened` the innermost call, or it did not.
    #[inline(always)]
    fn go_on(
        &mut self,
        act: &Act,
        next: &Act,
        onward: Onward,
        leave: u32,
        opened: bool,
        round: &mut Round<'_, '_>,
    ) {
        match onward {
            Onward::Nothing => {}
            Onward::Calls => {
                self.frames.push(Frame {
                    returns_to: act.behind,
                    function: next.inside,
                    base: self.frames.len() as u32,
                    call: self.began,
                });
                self.began += 1;
            }
            Onward::Returns => self.leave_innermost(leave, round),
            Onward::TailCalls => {
                if let Some(&top) = self.frames.last() {
                    self.frames.push(Frame {
                        function: next.inside,
                        call: self.began,
                        ..top
                    });
                    self.began += 1;
                    round.effects.tail_call(round.execution);
                }
            }
            Onward::Resolves if opened => {
                if let Some(top) = self.frames.last_mut() {
                    top.function = next.inside;
                }
            }
            Onward::Resolves => self.rename(next.place()),
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
    pub fn perform_far(&mut self, act: &Act, deed: &Deed<'_>, next: &Act, round: &mut Round<'_, '_>) -> bool {
        let Some(low) = self.low(deed) else {
            return false;
        };
        let Some(&sharing) = low.checked_sub(1).and_then(|at| self.frames.get(at)) else {
            return false;
        };
        let left = deed.levels.len().saturating_sub(1);
        let inner = match (deed.open.last(), deed.renames) {
            (Some(open), _) => Key {
                returns_to: match open.base {
                    NONE => sharing.returns_to,
                    _ => open.returns_to,
                },
                function: open.function,
            },
            (None, Some(to)) if left == 0 => Key {
                function: to.function,
                ..sharing.key()
            },
            (None, _) => sharing.key(),
        };
        let runs_below = |function| {
            deed.renames.is_some_and(|to| to.function == function) || self.shares_with(low, function)
        };
        let runs = |function| match deed.open.last() {
            None => runs_below(function),
            Some(last) => {
                let shares = |open: &Frame| open.base == last.base && open.function == function;
                deed.open.iter().any(shares) || last.base == NONE && runs_below(function)
            }
        };
        let Some(onward) = act.onward(next, inner, round.places, runs) else {
            return false;
        };
        if let Some(to) = deed.renames {
            self.rename(to);
        }
        for leave in 0..left {
            self.leave_innermost(leave as u32, round);
        }
        let began = self.began;
        self.frames.extend(deed.open.iter().map(|&open| {
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
        self.began += act.begin;
        self.go_on(act, next, onward, left as u32, !deed.open.is_empty(), round);
        true
    }

    /// How many frames stay, if the open calls are those that an act is meant for.
    fn low(&self, deed: &Deed<'_>) -> Option<usize> {
        let mut len = self.frames.len();
        for (number, level) in deed.levels.iter().enumerate() {
            let level = Level::of(level);
            let at = len.checked_sub(1)?;
            let frame = self.frames.get(at)?;
            let goes_on = number + 1 == deed.levels.len();
            let fits = match goes_on {
                true => level.key.fits(frame),
                false => level.key.is_left(frame),
            };
            let base = frame.base as usize;
            if !fits || level.alone && base != at && !self.may_share(base..at + 1, number, deed) {
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
    fn may_share(&self, frames: std::ops::Range<usize>, level: usize, deed: &Deed<'_>) -> bool {
        let sharing = self.frames.get(frames).unwrap_or(&[]);
        let jumps = |function| deed.tails.contains(&Tail { level, function });
        !deed.tails.is_empty()
            && sharing.len() <= MOST_SHARING
            && !sharing.iter().any(|frame| jumps(frame.function))
            && !deed.renames.is_some_and(|to| jumps(to.function))
    }
}
