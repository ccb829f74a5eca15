//! What a path does to the open calls, done at once where they are such as it is meant for.

use super::act::{Act, Deed, Key, Level, Near, Onward, Tail};
use super::{Frame, NONE, Stack};
use crate::forest::effects::Effects;
use crate::forest::places::{Place, Places};

/// The most calls that may share a return for them to be looked at: bounds the work of each time.
const MOST_SHARING: usize = 64;

/// Who an act is performed for.
pub(in crate::forest) struct Round<'a, 'p> {
    pub execution: u64,
    pub effects: &'a mut Effects,
    pub places: &'a Places<'p>,
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
            0 => Key::of(frame),
            1 => near.open[0],
            _ => near.open[1],
        };
        let mut onward = None;
        if !act.goes_on(next, inner, round.places) {
            let runs = |function| near.opened == 0 && self.shares_with(low, function);
            onward = act.onward(next, inner.function, round.places, runs);
            if onward.is_none() {
                return false;
            }
        }
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
        match onward {
            None => self.go_on(act, next, u32::from(near.left), round),
            Some(onward) => self.go_onward(onward, next, near.opened > 0, round),
        }
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

    /// The way to the next path, as the end tells it; `leave` is the number of the leave that it may be.
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

    /// The same, where the end does not tell it; the path `opened` the innermost call, or it did not.
    #[inline]
    fn go_onward(&mut self, onward: Onward, next: &Act, opened: bool, round: &mut Round<'_, '_>) {
        match (onward, self.frames.last_mut()) {
            (Onward::TailCalls, Some(&mut top)) => {
                self.frames.push(Frame {
                    function: next.inside,
                    call: self.began,
                    ..top
                });
                self.began += 1;
                round.effects.tail_call(round.execution);
            }
            (Onward::Resolves, Some(top)) if opened => top.function = next.inside,
            (Onward::Resolves, _) => self.rename(next.place()),
            (Onward::TailCalls, None) => {}
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
                ..Key::of(&sharing)
            },
            (None, _) => Key::of(&sharing),
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
        let mut onward = None;
        if !act.goes_on(next, inner, round.places) {
            onward = act.onward(next, inner.function, round.places, runs);
            if onward.is_none() {
                return false;
            }
        }
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
        match onward {
            None => self.go_on(act, next, left as u32, round),
            Some(onward) => self.go_onward(onward, next, !deed.open.is_empty(), round),
        }
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
