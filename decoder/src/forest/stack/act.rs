//! What a path does to the open calls at once.

use super::{Frame, NONE, Stack};
use crate::forest::Left;
use crate::forest::nodes::{NO_PARENT, Nodes, Pattern};
use crate::forest::places::Place;

/// What a path does to the open calls, as far as it is known beforehand.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Act<'a> {
    /// The calls that it returns from, one after the other, and the one that it goes on in.
    pub levels: &'a [Level],
    /// What these call, and how many calls that are.
    pub pattern: Option<Pattern>,
    pub calls: u32,
    /// Which of them stay open, outermost first: of these, the ones from a number on, and how many.
    pub frames: &'a [Open],
    pub first_open: u32,
    pub open: u16,
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

/// A frame that lies ready, together with calls: its instruction and its node are counted from those of the pattern, its base from the
/// first that lies ready with it, [`NONE`] where it shares the return of the level it was called in; its words are not known.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Open(Frame);

impl Open {
    /// That of a call that was tried, above the outermost frame; `begin` and `before` are what its instruction and its node are counted
    /// from.
    pub fn new(tried: &Frame, begin: u32, before: u32) -> Self {
        Self(Frame {
            first: tried.first - u64::from(begin),
            node: tried.node - before,
            base: tried.base.checked_sub(1).unwrap_or(NONE),
            ..*tried
        })
    }
}

/// The most calls that may share a return for them to be looked at: bounds the work of each time.
const MOST_SHARING: usize = 64;

impl Stack {
    /// Does what a path that begins with instruction `index` does, if the open calls are those that it is meant for, and its calls
    /// can be told apart from others. Says whether it did: it may not for more than two levels. What it calls is counted from instruction
    /// `begin`.
    #[inline(always)]
    pub fn perform_near(&mut self, act: &Act<'_>, index: u64, begin: u64) -> bool {
        let Some((at, frame)) = self.frame_below(self.frames.len()) else {
            return false;
        };
        match act.levels {
            [stays] => {
                let fits = stays.fits(at, frame) & self.nodes.has_room();
                if fits && let Some(pattern) = act.pattern {
                    let outer = frame.node;
                    let node = self.nodes.begin_batch(pattern, act.calls, begin);
                    if self.call_from(stays, at, outer) {
                        self.note_depths(stays);
                    }
                    self.open(act, begin, node);
                }
                fits
            }
            [left, stays] => {
                let base = frame.base as usize;
                let Some((below, outer)) = self.frame_below(base) else {
                    return false;
                };
                let fits = left.is_left(at, frame) & stays.fits(below, outer);
                if !(fits & self.nodes.has_room()) {
                    return false;
                }
                let Some(pattern) = act.pattern else {
                    self.leave(left, index);
                    return true;
                };
                let (inner, outer) = (frame.node, outer.node);
                let node = self.nodes.begin_batch(pattern, act.calls, begin);
                let noted = self.call_from(left, at, inner) | self.call_from(stays, below, outer);
                self.leave(left, index);
                if noted {
                    self.note_depths(stays);
                }
                self.open(act, begin, node);
                true
            }
            _ => false,
        }
    }

    /// The same for any number of levels.
    pub fn perform_far(&mut self, act: &Act<'_>, index: u64, begin: u64) -> bool {
        let fits = self.fits(act.levels);
        if fits {
            self.perform(act, index, begin);
        }
        fits
    }

    /// The open calls are those that an act is meant for, and its calls can be told apart from others.
    fn fits(&self, levels: &[Level]) -> bool {
        let mut len = self.frames.len();
        let Some((stays, left)) = levels.split_last() else {
            return false;
        };
        for level in left {
            let Some((at, frame)) = self.frame_below(len) else {
                return false;
            };
            if !level.is_left(at, frame) {
                return false;
            }
            len = frame.base as usize;
        }
        self.frame_below(len)
            .is_some_and(|(at, frame)| stays.fits(at, frame))
            && self.nodes.has_room()
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

    #[inline]
    fn frame_below(&self, len: usize) -> Option<(usize, &Frame)> {
        let at = len.wrapping_sub(1);
        Some((at, self.frames.get(at)?))
    }

    /// Does what a path that begins with instruction `index` does; the act has to fit.
    pub fn perform(&mut self, act: &Act<'_>, index: u64, begin: u64) {
        let (mut noted, mut node) = (false, 0);
        if let Some(pattern) = act.pattern {
            node = self.nodes.begin_batch(pattern, act.calls, begin);
        }
        let Some((stays, left)) = act.levels.split_last() else {
            return;
        };
        for level in left {
            noted |= self.call_from_top(level);
            self.leave(level, index);
        }
        noted |= self.call_from_top(stays);
        if noted {
            self.note_depths(stays);
        }
        self.open(act, begin, node);
    }

    /// The pattern of the last batch may have calls of the innermost one, which is that of a level. Gives whether
    /// depths are to be noted.
    #[inline]
    fn call_from_top(&mut self, level: &Level) -> bool {
        let at = self.frames.len().wrapping_sub(1);
        let node = self.frames.last().map_or(NO_PARENT, |frame| frame.node);
        self.call_from(level, at, node)
    }

    /// The same of the call `node`, whose frame is at position `at`.
    #[inline(always)]
    fn call_from(&mut self, level: &Level, at: usize, node: u32) -> bool {
        if level.nested == 0 {
            return false;
        }
        self.nodes.put_parent(node);
        Nodes::passes_noted_depth(at as u32, level.nested.into())
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

    /// The innermost call, which is that of a level, ends in the path that begins with instruction `index`, and with it all that share its
    /// return.
    #[inline(always)]
    fn leave(&mut self, level: &Level, index: u64) {
        let Some(&frame) = self.frames.last() else { return };
        let at = self.frames.len() - 1;
        let index = index + u64::from(level.offset);
        self.frames.truncate(at);
        self.unlink(&frame, at);
        self.nodes.close(frame.lasting, frame.first, index, level.left);
        if frame.base as usize != at {
            self.leave_sharing(frame.base as usize, index);
        }
    }

    /// Those calls end that share the return of one that has ended.
    #[cold]
    fn leave_sharing(&mut self, base: usize, index: u64) {
        self.truncate(base, index, Left::TailCall);
    }

    /// Opens the frames that lie ready; `begin` and `node` are what they are counted from.
    #[inline(always)]
    fn open(&mut self, act: &Act<'_>, begin: u64, node: u32) {
        let first = act.first_open as usize;
        match act.open {
            0 => {}
            // So it is most often.
            1 => {
                if let Some(open) = act.frames.get(first) {
                    self.open_one(open, self.frames.len(), begin, node);
                }
            }
            len => {
                let ready = act.frames.get(first..first + usize::from(len));
                self.open_some(ready.unwrap_or(&[]), begin, node);
            }
        }
    }

    #[inline(never)]
    fn open_some(&mut self, ready: &[Open], begin: u64, node: u32) {
        let below = self.frames.len();
        for open in ready {
            self.open_one(open, below, begin, node);
        }
    }

    /// Opens one of those that lie ready together, above so many frames.
    #[inline(always)]
    fn open_one(&mut self, open: &Open, below: usize, begin: u64, node: u32) {
        let mut frame = open.0;
        frame.first += begin;
        frame.node += node;
        frame.lasting = self.nodes.put_lasting(frame.what);
        if frame.base == NONE {
            (frame.returns_to, frame.base) = self.shared(below);
        } else {
            frame.base += below as u32;
        }
        self.frames.push(frame);
    }

    /// The return that is shared with the innermost of so many calls.
    #[cold]
    fn shared(&self, len: usize) -> (u32, u32) {
        self.frame_below(len)
            .map_or((NONE, 0), |(_, frame)| (frame.returns_to, frame.base))
    }
}
