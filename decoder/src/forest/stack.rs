//! The calls that are open at a point of a history, and what has happened to them.

mod act;
mod perform;

use super::effects::Op;
use super::index::{Adopted, Tree};
use super::places::Place;
use super::spans::SPAN;
use super::{Left, Tag};
pub(super) use act::{Act, Deed, Does, End, Far, Key, Level, Near, Tail};
use backtrail_pt::Avma;
pub(super) use perform::Round;
use rustc_hash::FxHashMap;

/// An open call.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(super) struct Frame {
    /// The number of the place where its return goes; [`NONE`]: not known (a root, a signal handler).
    pub returns_to: u32,
    /// Its function's number, when known.
    pub function: u32,
    /// The position of the frame whose return it shares, because it was jumped to; its own, if not.
    pub base: u32,
    /// The call: its number of those that began; [`Frame::ADOPTED`] and its number of those adopted; [`NONE`]: it stands for any.
    pub call: u32,
}

const _: () = assert!(size_of::<Frame>() == 16);

impl Frame {
    /// Calls have lower numbers.
    const ADOPTED: u32 = 1 << 31;
    /// The most calls that can be told apart, but for those of some executions.
    const MAX_CALLS: u32 = Self::ADOPTED - 2 * Stack::MOST_AT_ONCE * SPAN as u32;
}

/// Where a frame stands in the lists of them.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The next frame below that expects a return to the same place, and that runs the same function.
    same_return: u32,
    same_function: u32,
}

/// The number of nothing.
pub(super) const NONE: u32 = u32::MAX;

/// What a signal handler's frame knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    /// Where the interrupted thread goes on.
    pub interrupted: Avma,
    /// The system call that was interrupted: it may run again.
    pub restarts: Option<Avma>,
    /// The handler has returned, to the code that will call `rt_sigreturn`.
    pub returned: bool,
}

/// A new frame, before it has a call.
pub(super) struct Entry {
    pub to: Place,
    pub tag: Tag,
    /// The number of the place where its return goes, or [`NONE`].
    pub returns_to: u32,
    pub signal: Option<Signal>,
}

/// The open calls, innermost last, never empty once a root is open.
#[derive(Debug, Default)]
pub(super) struct Stack {
    frames: Vec<Frame>,
    /// Those frames that are in lists, outermost first: the others come in when a list is asked for.
    links: Vec<Link>,
    /// The innermost of them that expects a return to a place, by the place's number, and that runs a
    /// function, by the function's.
    expecting: Vec<u32>,
    running: Vec<u32>,
    /// The frames that handle a signal, by where they go back to, ascending.
    interrupted_at: FxHashMap<Avma, Vec<u32>>,
    /// What the frames that handle a signal know, with their positions; ascending.
    signals: Vec<(u32, Signal)>,
    /// How many calls began.
    began: u32,
    /// The lowest depth since it was asked for: how many calls were open, less the adopted ones.
    lowest: i32,
    log: Log,
}

/// What has happened, as far as it is kept.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The execution that is gone through transfer by transfer, its first instruction, how many calls began before it, and what
    /// has happened in it.
    execution: u64,
    index: u64,
    before: u32,
    pub ops: Vec<Op>,
    /// See [`Index`](super::index::Index).
    pub trees: Vec<Tree>,
    pub adopted: Vec<Adopted>,
    pub renamed: Vec<(u32, u32)>,
    pub interrupted: Vec<(u32, Avma)>,
}

/// Frames to look at before lists are asked for.
const NEAR: usize = 4;

/// The entry of a list, which is made long enough.
#[inline]
fn entry(list: &mut Vec<u32>, at: u32) -> Option<&mut u32> {
    let at = at as usize;
    if list.len() <= at {
        list.resize(at + 1, NONE);
    }
    list.get_mut(at)
}

fn known(list: &[u32], at: u32) -> Option<usize> {
    let found = *list.get(at as usize)?;
    (found != NONE).then_some(found as usize)
}

impl Stack {
    /// A path has no more transfers, or what it does is not known beforehand.
    pub const MOST_AT_ONCE: u32 = 1 << 18;

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub fn top(&self) -> Option<&Frame> {
        self.frames.last()
    }

    pub fn frame(&self, at: usize) -> Option<&Frame> {
        self.frames.get(at)
    }

    /// How many calls began.
    pub fn began(&self) -> u32 {
        self.began
    }

    /// How deep the innermost call is; that of the outermost ones may be below 0.
    pub fn depth(&self) -> i32 {
        self.frames.len() as i32 - self.log.adopted.len() as i32
    }

    /// The lowest depth since this was asked for, and now.
    pub fn take_lowest(&mut self) -> i32 {
        let now = self.depth();
        std::mem::replace(&mut self.lowest, now).min(now)
    }

    /// What happens from now on is that of an execution which begins with instruction `index`.
    pub fn begin_log(&mut self, execution: u64, index: u64) {
        (self.log.execution, self.log.index, self.log.before) = (execution, index, self.began);
        self.log.ops.clear();
    }

    /// The execution is over. Gives what has happened in it.
    pub fn end_log(&mut self) -> &[Op] {
        self.log.before = u32::MAX;
        &self.log.ops
    }

    /// What has happened.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The instruction of the execution at `index`.
    fn offset(&self, index: u64) -> u32 {
        index.saturating_sub(self.log.index) as u32
    }

    /// There are almost as many calls as can be told apart.
    pub fn is_full(&self) -> bool {
        self.began >= Frame::MAX_CALLS
    }

    /// Opens a call at instruction `index`, inside of the innermost one, if any. It does not where there are as many calls as can be
    /// told apart.
    pub fn push(&mut self, index: u64, new: Entry) {
        if self.is_full() {
            return;
        }
        let at = self.frames.len() as u32;
        let call = self.began;
        if let Some(signal) = new.signal {
            self.log.interrupted.push((call, signal.interrupted));
            self.signals.push((at, signal));
            for pc in signal.goes_back_to() {
                self.interrupted_at.entry(pc).or_default().push(at);
            }
        }
        if at == 0 {
            self.log.trees.push(Tree {
                first: index,
                root: call,
                position: self.depth(),
                adopted: self.log.adopted.len() as u32,
            });
        }
        self.log.ops.push(Op::Begin {
            offset: self.offset(index),
            function: new.to.id,
            entered: new.tag,
        });
        self.began += 1;
        let base = match self.frames.last() {
            Some(below) if new.tag == Tag::TailCall => below.base,
            _ => at,
        };
        self.frames.push(Frame {
            returns_to: new.returns_to,
            function: new.to.function,
            base,
            call,
        });
    }

    /// Opens a call that stands for any of a function, and of which nothing else is known.
    pub fn stand_in(&mut self, function: u32) {
        self.frames.push(Frame {
            returns_to: NONE,
            function,
            base: self.frames.len() as u32,
            call: NONE,
        });
    }

    /// Puts a new root around all calls: the outermost has just ended, and it began when that did.
    pub fn adopt(&mut self, to: Place) {
        let call = Frame::ADOPTED | self.log.adopted.len() as u32;
        self.log.adopted.push(Adopted {
            function: to.id,
            execution: self.log.execution,
        });
        self.frames.push(Frame {
            returns_to: NONE,
            function: to.function,
            base: 0,
            call,
        });
    }

    /// Enters into the lists the frames that are in none.
    fn link(&mut self) {
        for at in self.links.len()..self.frames.len() {
            let Some(frame) = self.frames.get(at) else { return };
            let (at, mut same_return, mut same_function) = (at as u32, NONE, NONE);
            // A frame that shares a return is found by the one it shares it with.
            if frame.returns_to != NONE
                && frame.base == at
                && let Some(head) = entry(&mut self.expecting, frame.returns_to)
            {
                same_return = std::mem::replace(head, at);
            }
            if frame.function != Place::UNKNOWN
                && let Some(head) = entry(&mut self.running, frame.function)
            {
                same_function = std::mem::replace(head, at);
            }
            self.links.push(Link {
                same_return,
                same_function,
            });
        }
    }

    /// Takes the innermost frame, at position `at`, out of the lists, if it is in them.
    #[inline]
    fn unlink(&mut self, frame: &Frame, at: usize) {
        if self.links.len() > at {
            self.unlink_last(frame);
        }
    }

    #[inline(never)]
    fn unlink_last(&mut self, frame: &Frame) {
        let Some(link) = self.links.pop() else { return };
        let at = self.links.len() as u32;
        if frame.returns_to != NONE
            && frame.base == at
            && let Some(head) = self.expecting.get_mut(frame.returns_to as usize)
        {
            *head = link.same_return;
        }
        if frame.function != Place::UNKNOWN
            && let Some(head) = self.running.get_mut(frame.function as usize)
        {
            *head = link.same_function;
        }
    }

    /// Begins anew, with nothing open, and nothing that has happened.
    pub fn begin(&mut self) {
        while self.shut().is_some() {}
        self.began = 0;
        self.log.trees.clear();
        self.log.renamed.clear();
        self.begin_log(0, 0);
    }

    /// The open calls, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Takes away the innermost frame, which is the first of each of its lists.
    #[inline]
    fn shut(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        let at = self.frames.len();
        self.unlink(&frame, at);
        if self.signals.last().is_some_and(|&(of, _)| of as usize == at) {
            self.signal_ends();
        }
        self.lowest = self.lowest.min(self.depth());
        Some(frame)
    }

    #[cold]
    fn signal_ends(&mut self) {
        if let Some((_, signal)) = self.signals.pop() {
            for pc in signal.goes_back_to() {
                self.interrupted_at.get_mut(&pc).and_then(Vec::pop);
            }
        }
    }

    /// Closes the innermost call before instruction `index`. Says whether it was one.
    ///
    /// A call without an instruction (something came in before its first) is none, and forgotten.
    pub fn pop(&mut self, index: u64, left: Left) -> bool {
        let Some(frame) = self.shut() else {
            return false;
        };
        let offset = self.offset(index);
        let newest = self.began.checked_sub(1) == Some(frame.call);
        let begins = |op: &mut Op| matches!(op, Op::Begin { offset: begun, .. } if *begun == offset);
        if newest && self.log.ops.pop_if(begins).is_some() {
            self.began = frame.call;
            let log = &mut self.log;
            log.interrupted.pop_if(|(call, _)| *call == frame.call);
            log.renamed.pop_if(|(call, _)| *call == frame.call);
            log.trees.pop_if(|tree| tree.root == frame.call);
            return false;
        }
        self.log.ops.push(match frame.call {
            NONE => Op::Leave { offset, left },
            _ => Op::End { offset, left },
        });
        true
    }

    /// Closes the innermost call before instruction `index` by a return to the place of this number, when it was
    /// called from there and shares its return with none. Gives whether it did.
    #[inline]
    pub fn pop_called(&mut self, place: u32, index: u64) -> bool {
        let at = self.frames.len().wrapping_sub(1);
        let called = |frame: &Frame| frame.returns_to == place && frame.base as usize == at;
        self.frames.last().is_some_and(called) && {
            self.pop(index, Left::Return);
            true
        }
    }

    /// Closes calls until `len` are open.
    pub fn truncate(&mut self, len: usize, index: u64, left: Left) {
        while self.frames.len() > len {
            self.pop(index, left);
        }
    }

    /// The innermost call turns out to be one of another function: what it was was a stub.
    pub fn rename(&mut self, to: Place) {
        let Some(mut frame) = self.frames.pop() else {
            return;
        };
        self.unlink(&frame, self.frames.len());
        frame.function = to.function;
        self.frames.push(frame);
        self.log.rename(frame.call, to.id);
    }

    /// What a frame knows of the signal that it handles.
    pub fn signal(&self, at: usize) -> Option<Signal> {
        let known = self.signals.binary_search_by_key(&(at as u32), |&(at, _)| at);
        known.ok().and_then(|known| Some(self.signals.get(known)?.1))
    }

    /// The frame of a function that went on when the stack was switched to its own: it is no root, and yet where it returns
    /// is not known.
    pub fn is_resumed(&self, at: usize) -> bool {
        let frame = self.frames.get(at).filter(|_| at > 0);
        frame.is_some_and(|frame| frame.returns_to == NONE && frame.base as usize == at)
            && self.signal(at).is_none()
    }

    /// The innermost signal handler returned.
    pub fn handler_returned(&mut self) {
        let top = self.frames.len().wrapping_sub(1);
        if let Some((at, signal)) = self.signals.last_mut()
            && *at as usize == top
        {
            signal.returned = true;
        }
    }

    /// The innermost frame that expects a return to the place of this number.
    pub fn expecting(&mut self, place: u32) -> Option<usize> {
        self.link();
        known(&self.expecting, place)
    }

    /// The innermost frame of the function that a place is in.
    pub fn running(&mut self, place: Place) -> Option<usize> {
        if !place.is_known() {
            return None;
        }
        let near = self.frames.iter().enumerate().rev().take(NEAR);
        let mut near = near.filter(|(_, frame)| frame.function == place.function);
        if let Some((at, _)) = near.next() {
            return Some(at);
        }
        self.link();
        known(&self.running, place.function)
    }

    /// The innermost frame of the function that a place is in, from position `base` on.
    pub fn running_from(&mut self, base: usize, place: Place) -> Option<usize> {
        if self.frames.len() > base + NEAR {
            return self.running(place).filter(|&at| at >= base);
        }
        let above = self.frames.get(base..).unwrap_or(&[]);
        let found = above.iter().rposition(|frame| frame.function == place.function);
        found.filter(|_| place.is_known()).map(|at| at + base)
    }

    /// The innermost signal handler that interrupted the thread at an address, or before the system
    /// call there.
    pub fn interrupted_at(&self, pc: Avma) -> Option<usize> {
        let last = self.interrupted_at.get(&pc)?.last()?;
        Some(*last as usize)
    }

    /// The position of the frame whose return the innermost one shares: itself, if it was called.
    pub fn base(&self) -> usize {
        self.frames.last().map_or(0, |frame| frame.base as usize)
    }

    /// What has happened, in all.
    pub fn finish(self) -> (u32, Log) {
        (self.began, self.log)
    }
}

impl Log {
    /// A call turns out to be one of the function of this number.
    pub fn rename(&mut self, call: u32, to: u32) {
        match call {
            // Of one that began in this execution it is not kept as what else it was.
            NONE => self.renamed.push((call, to)),
            adopted @ Frame::ADOPTED.. => {
                if let Some(adopted) = self.adopted.get_mut((adopted & !Frame::ADOPTED) as usize) {
                    adopted.function = to;
                }
            }
            call if call >= self.before => {
                let mut begins = self.ops.iter_mut().filter_map(|op| match op {
                    Op::Begin { function, .. } => Some(function),
                    _ => None,
                });
                if let Some(function) = begins.nth((call - self.before) as usize) {
                    *function = to;
                }
            }
            call => self.renamed.push((call, to)),
        }
    }
}

impl Signal {
    /// Where the handler may go back to.
    fn goes_back_to(self) -> impl Iterator<Item = Avma> {
        std::iter::once(self.interrupted).chain(self.restarts)
    }
}
