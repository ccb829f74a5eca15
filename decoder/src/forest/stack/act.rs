//! What a path does to the open calls at once.

use super::{Frame, NONE, Stack};
use crate::forest::Left;
use crate::forest::nodes::{Nodes, Pattern};
use crate::forest::places::Place;

/// What a path does to the open calls, as far as it is known beforehand.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Act<'a> {
    /// The calls that it returns from, one after the other, and the one that it goes on in.
    pub levels: &'a [Level],
    /// What these call, and how many calls that are.
    pub pattern: Option<Pattern>,
    pub calls: u32,
    /// Which of them stay open, outermost first.
    pub open: &'a [Open],
}

/// A call that a path is in, and that was open before.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Level {
    /// It has to be one of this function; [`Level::ANY`].
    pub function: u32,
    /// The number of the place where it has to return to, the instruction of the path that is there, and how it ends; [`NONE`]: it
    /// stays open.
    pub returns_to: u32,
    pub offset: u32,
    pub left: Left,
    /// It has to share its return with no call below.
    pub alone: bool,
    /// How deep what it calls is inside of one another, or [`Nodes::DEPTHS`], if deeper; 0: the pattern has no calls of it.
    pub nested: u8,
}

impl Level {
    /// The number of no function: it may be any.
    pub const ANY: u32 = Place::UNKNOWN - 1;

    /// It may be the call of a frame, which is at position `at`, if it returns as it has to.
    #[inline]
    fn fits(&self, at: usize, frame: &Frame) -> bool {
        // All is asked at once: what levels ask differs from one to the next.
        ((self.function == Self::ANY) | (self.function == frame.function))
            & (!self.alone | (frame.base as usize == at))
    }

    /// The same, and it returns where it has to.
    #[inline]
    fn is_left(&self, at: usize, frame: &Frame) -> bool {
        self.fits(at, frame) & (self.returns_to == frame.returns_to)
    }
}

/// A frame that lies ready, together with calls.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Open {
    /// Where its call begins, counted from where the pattern does.
    pub first: u32,
    /// Its call, counted from the pattern's first.
    pub node: u32,
    /// The frame whose return it shares, counted from the first that lies ready with it; [`NONE`]: it shares that of the level it was
    /// called in.
    pub base: u32,
    pub returns_to: u32,
    pub function: u32,
    /// How its call begins, see [`what`](crate::forest::nodes::what).
    pub what: u32,
}

/// The most calls that may share a return for them to be looked at: bounds the work of each time.
const MOST_SHARING: usize = 64;

impl Stack {
    /// The open calls are those that an act is meant for, and its calls can be told apart from others.
    #[inline(always)]
    pub fn fits(&self, levels: &[Level]) -> bool {
        let fits = match levels {
            [stays] => self.stays_in(stays, self.frames.len()),
            [left, stays] => match self.frame_below(self.frames.len()) {
                Some((at, frame)) => left.is_left(at, frame) && self.stays_in(stays, frame.base as usize),
                None => false,
            },
            _ => self.fits_many(levels),
        };
        fits & self.nodes.has_room()
    }

    /// The same, where a call that should share its return with none shares it with others: as long as `jumps` does not hold for any of those
    /// and the level. Then none of them is jumped back into.
    pub fn fits_sharing(&self, levels: &[Level], jumps: impl Fn(usize, u32) -> bool) -> bool {
        let mut len = self.frames.len();
        for (number, level) in levels.iter().enumerate() {
            let Some((at, frame)) = self.frame_below(len) else {
                return false;
            };
            let known = Level {
                alone: false,
                ..*level
            };
            let fits = match number + 1 == levels.len() {
                true => known.fits(at, frame),
                false => known.is_left(at, frame),
            };
            let base = frame.base as usize;
            let sharing = self.frames.get(base..=at).unwrap_or(&[]);
            let back =
                || sharing.len() > MOST_SHARING || sharing.iter().any(|frame| jumps(number, frame.function));
            if !fits || level.alone && back() {
                return false;
            }
            len = base;
        }
        self.nodes.has_room()
    }

    /// [`Self::fits`] for any number of levels.
    fn fits_many(&self, levels: &[Level]) -> bool {
        let mut len = self.frames.len();
        let mut fits = true;
        let Some((stays, left)) = levels.split_last() else {
            return false;
        };
        for level in left {
            let Some((at, frame)) = self.frame_below(len) else {
                return false;
            };
            fits &= level.is_left(at, frame);
            len = frame.base as usize;
        }
        fits && self.stays_in(stays, len)
    }

    /// The innermost of `len` calls may be that of a level.
    #[inline]
    fn stays_in(&self, level: &Level, len: usize) -> bool {
        self.frame_below(len)
            .is_some_and(|(at, frame)| level.fits(at, frame))
    }

    #[inline]
    fn frame_below(&self, len: usize) -> Option<(usize, &Frame)> {
        let at = len.wrapping_sub(1);
        Some((at, self.frames.get(at)?))
    }

    /// Does what a path that begins with instruction `index` does; the act has to fit. What it calls is counted from instruction `begin`.
    #[inline(always)]
    pub fn perform(&mut self, act: &Act<'_>, index: u64, begin: u64) {
        let (mut noted, mut node) = (false, 0);
        if let Some(pattern) = act.pattern {
            node = self.nodes.begin_batch(pattern, act.calls, begin);
        }
        match act.levels {
            [stays] => noted |= self.call_from(stays),
            [left, stays] => {
                noted |= self.call_from(left);
                self.leave(left, index + u64::from(left.offset));
                noted |= self.call_from(stays);
            }
            levels => noted |= self.leave_many(levels, index),
        }
        if noted && let Some(stays) = act.levels.last() {
            self.note_depths(stays);
        }
        self.open(act.open, begin, node);
    }

    /// Returns out of the calls of any number of levels but the last. Gives whether depths are to be noted.
    fn leave_many(&mut self, levels: &[Level], index: u64) -> bool {
        let mut noted = false;
        if let Some((stays, left)) = levels.split_last() {
            for level in left {
                noted |= self.call_from(level);
                self.leave(level, index + u64::from(level.offset));
            }
            noted |= self.call_from(stays);
        }
        noted
    }

    /// The pattern of the last batch may have calls of the innermost one, which is that of a level. Gives whether
    /// depths are to be noted.
    #[inline]
    fn call_from(&mut self, level: &Level) -> bool {
        if level.nested == 0 {
            return false;
        }
        let depth = self.frames.len().wrapping_sub(1);
        let Some(frame) = self.frames.get(depth) else {
            return false;
        };
        self.nodes.put_parent(frame.node);
        Nodes::passes_noted_depth(depth as u32, level.nested.into())
    }

    /// Notes what is to be noted of the depths of the last batch's calls; the innermost call is that of `stays`.
    #[cold]
    fn note_depths(&mut self, stays: &Level) {
        let mut outer: Vec<u32> = self.nodes.last_parents().collect();
        let called = outer.pop_if(|_| stays.nested > 0);
        for node in &mut outer {
            *node = self.nodes.depth(*node);
        }
        outer.extend(called.map(|_| self.frames.len() as u32 - 1));
        self.nodes.note_depths(&outer);
    }

    /// The innermost call, which is that of a level, ends before instruction `index`, and with it all that share its return.
    #[inline]
    fn leave(&mut self, level: &Level, index: u64) {
        let Some(frame) = self.frames.pop() else { return };
        let at = self.frames.len();
        self.unlink(&frame, at);
        self.nodes.close(frame.lasting, frame.first, index, level.left);
        if frame.base as usize != at {
            self.truncate(frame.base as usize, index, Left::TailCall);
        }
    }

    /// Opens frames that lie ready; `begin` and `node` are what they are counted from.
    #[inline(always)]
    fn open(&mut self, ready: &[Open], begin: u64, node: u32) {
        let below = self.frames.len();
        for open in ready {
            let (returns_to, base) = match open.base {
                NONE => self.shared(below),
                base => (open.returns_to, below as u32 + base),
            };
            self.frames.push(Frame {
                first: begin + u64::from(open.first),
                node: node + open.node,
                lasting: self.nodes.put_lasting(open.what),
                returns_to,
                base,
                function: open.function,
                handler: false,
            });
        }
    }

    /// The return that is shared with the innermost of so many calls.
    #[cold]
    fn shared(&self, len: usize) -> (u32, u32) {
        self.frame_below(len)
            .map_or((NONE, 0), |(_, frame)| (frame.returns_to, frame.base))
    }
}
