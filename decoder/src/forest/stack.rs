//! The stack of open calls, and the log of its changes.

mod apply_summary;
mod log;
mod path_summary;

use super::code_sites::{CodeSite, FunctionIdx, SiteIdx};
use super::effects::Op;
use super::spans::SPAN;
use super::{EntryKind, Left};
pub(super) use apply_summary::SummaryCtx;
use backtrail_pt::Avma;
pub(super) use log::{CallTree, StackLog, SyntheticRoot};
pub(super) use path_summary::{
    EnclosingCall, FrameKey, InlineSummary, PathExit, PathSummary, SpilledParts, SpilledSummary, SummaryBody,
    TailJump,
};
use rustc_hash::FxHashMap;

/// An open call.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(super) struct Frame {
    /// The site it returns to; [`NONE`]: unknown (a root, a signal handler).
    pub returns_to: SiteIdx,
    /// The number of its function, if known.
    pub function: FunctionIdx,
    /// The position of the frame whose return it shares as a tail call; else its own.
    pub base: u32,
    /// The number of the recorded call; [`Frame::SYNTHETIC`] plus that of a synthetic root;
    /// [`NONE`]: a placeholder.
    pub call: u32,
}

const _: () = assert!(size_of::<Frame>() == 16);

impl Frame {
    /// Recorded calls have lower numbers.
    const SYNTHETIC: u32 = 1 << 31;
    /// The most recorded calls, less those of some executions.
    const MAX_CALLS: u32 = Self::SYNTHETIC - 2 * Stack::MOST_AT_ONCE * SPAN as u32;
}

/// The links of a frame in the search lists.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The next lower frames with the same return site, and of the same function.
    same_return: u32,
    same_function: u32,
}

/// The number of nothing.
pub(super) const NONE: u32 = u32::MAX;

/// The signal of a handler's frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    /// The address at which the interrupted thread continues.
    pub interrupted: Avma,
    /// The interrupted system call, which may run again.
    pub restarts: Option<Avma>,
    /// The handler returned to the code that will call `rt_sigreturn`.
    pub returned: bool,
}

/// A new frame before it has a call.
pub(super) struct Entry {
    pub to: CodeSite,
    pub tag: EntryKind,
    /// The site it returns to, or [`NONE`].
    pub returns_to: SiteIdx,
    pub signal: Option<Signal>,
}

/// The open calls, innermost last. It is never empty after the first root was opened.
#[derive(Debug, Default)]
pub(super) struct Stack {
    frames: Vec<Frame>,
    /// The frames in the search lists, outermost first. The others are added when a list is needed.
    links: Vec<Link>,
    /// The innermost listed frame by return site, and by function.
    expecting: Vec<u32>,
    running: Vec<u32>,
    /// The signal handlers' frames by the address they return to, ascending.
    interrupted_at: FxHashMap<Avma, Vec<u32>>,
    /// The signals of handlers' frames by position; ascending.
    signals: Vec<(u32, Signal)>,
    /// The number of recorded calls.
    began: u32,
    /// The lowest depth since the last query; synthetic roots do not count.
    lowest: i32,
    log: StackLog,
}

/// Frames to search before the lists are built.
const NEAR: usize = 4;

/// Returns an entry of a list, and extends the list if needed.
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
    /// The most transfers of a path with a summary.
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

    /// Returns the number of recorded calls.
    pub fn began(&self) -> u32 {
        self.began
    }

    /// Returns the call depth; synthetic roots count below 0.
    pub fn depth(&self) -> i32 {
        self.frames.len() as i32 - self.log.synthetic.len() as i32
    }

    /// Returns the lowest depth since the last query.
    pub fn take_lowest(&mut self) -> i32 {
        let now = self.depth();
        std::mem::replace(&mut self.lowest, now).min(now)
    }

    /// Starts the log of an execution that begins with instruction `index`.
    pub fn begin_log(&mut self, execution: u64, index: u64) {
        (self.log.execution, self.log.index, self.log.before) = (execution, index, self.began);
        self.log.ops.clear();
    }

    /// Ends the log of an execution and returns its operations.
    pub fn end_log(&mut self) -> &[Op] {
        self.log.before = u32::MAX;
        &self.log.ops
    }

    /// Returns the log.
    pub fn log(&self) -> &StackLog {
        &self.log
    }

    /// Returns the offset in the execution of the instruction at `index`.
    fn offset(&self, index: u64) -> u32 {
        index.saturating_sub(self.log.index) as u32
    }

    /// Returns whether the numbers for calls have almost run out.
    pub fn is_full(&self) -> bool {
        self.began >= Frame::MAX_CALLS
    }

    /// Opens a call at instruction `index`, inside the innermost one. Does nothing if the numbers
    /// for calls have run out.
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
            self.log.trees.push(CallTree {
                first: index,
                root: call,
                position: self.depth(),
                synthetic: self.log.synthetic.len() as u32,
            });
        }
        self.log.ops.push(Op::Begin {
            offset: self.offset(index),
            function: new.to.id,
            entered: new.tag,
        });
        self.began += 1;
        let base = match self.frames.last() {
            Some(below) if new.tag == EntryKind::TailCall => below.base,
            _ => at,
        };
        self.frames.push(Frame {
            returns_to: new.returns_to,
            function: new.to.function,
            base,
            call,
        });
    }

    /// Opens a placeholder for any call of a function.
    pub fn push_placeholder(&mut self, function: FunctionIdx) {
        self.frames.push(Frame {
            returns_to: SiteIdx::NONE,
            function,
            base: self.frames.len() as u32,
            call: NONE,
        });
    }

    /// Adds a synthetic root around all calls. The outermost call has just ended.
    pub fn adopt(&mut self, to: CodeSite) {
        let call = Frame::SYNTHETIC | self.log.synthetic.len() as u32;
        self.log.synthetic.push(SyntheticRoot {
            function: to.id,
            execution: self.log.execution,
        });
        self.frames.push(Frame {
            returns_to: SiteIdx::NONE,
            function: to.function,
            base: 0,
            call,
        });
    }

    /// Adds the missing frames to the search lists.
    fn link(&mut self) {
        for at in self.links.len()..self.frames.len() {
            let Some(frame) = self.frames.get(at) else { return };
            let (at, mut same_return, mut same_function) = (at as u32, NONE, NONE);
            // A frame that shares a return is found by the frame it shares it with.
            if frame.returns_to != SiteIdx::NONE
                && frame.base == at
                && let Some(head) = entry(&mut self.expecting, frame.returns_to.0)
            {
                same_return = std::mem::replace(head, at);
            }
            if frame.function != FunctionIdx::UNKNOWN
                && let Some(head) = entry(&mut self.running, frame.function.0)
            {
                same_function = std::mem::replace(head, at);
            }
            self.links.push(Link {
                same_return,
                same_function,
            });
        }
    }

    /// Removes the innermost frame, at position `at`, from the lists if it is listed.
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
        if frame.returns_to != SiteIdx::NONE
            && frame.base == at
            && let Some(head) = self.expecting.get_mut(frame.returns_to.index())
        {
            *head = link.same_return;
        }
        if frame.function != FunctionIdx::UNKNOWN
            && let Some(head) = self.running.get_mut(frame.function.index())
        {
            *head = link.same_function;
        }
    }

    /// Clears the stack and the log.
    pub fn begin(&mut self) {
        while self.remove_top().is_some() {}
        self.began = 0;
        self.log.trees.clear();
        self.log.renamed.clear();
        self.begin_log(0, 0);
    }

    /// Returns the open calls, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Removes the innermost frame, which is the first in each of its lists.
    #[inline]
    fn remove_top(&mut self) -> Option<Frame> {
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

    /// Closes the innermost call before instruction `index`. Returns whether it was a call.
    ///
    /// A call without an instruction (something happened before its first) is dropped.
    pub fn pop(&mut self, index: u64, left: Left) -> bool {
        let Some(frame) = self.remove_top() else {
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

    /// Closes the innermost call by a return to its site, if it is no tail call. Returns whether it
    /// did.
    #[inline]
    pub fn pop_called(&mut self, site: SiteIdx, index: u64) -> bool {
        let at = self.frames.len().wrapping_sub(1);
        let called = |frame: &Frame| frame.returns_to == site && frame.base as usize == at;
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

    /// Changes the function of the innermost call, which was a stub.
    pub fn rename(&mut self, to: CodeSite) {
        let Some(mut frame) = self.frames.pop() else {
            return;
        };
        self.unlink(&frame, self.frames.len());
        frame.function = to.function;
        self.frames.push(frame);
        self.log.rename(frame.call, to.id);
    }

    /// Returns the signal of a handler's frame.
    pub fn signal(&self, at: usize) -> Option<Signal> {
        let known = self.signals.binary_search_by_key(&(at as u32), |&(at, _)| at);
        known.ok().and_then(|known| Some(self.signals.get(known)?.1))
    }

    /// Returns whether the frame was resumed by a stack switch: it is no root, but its return site
    /// is unknown.
    pub fn is_resumed(&self, at: usize) -> bool {
        let frame = self.frames.get(at).filter(|_| at > 0);
        frame.is_some_and(|frame| frame.returns_to == SiteIdx::NONE && frame.base as usize == at)
            && self.signal(at).is_none()
    }

    /// Records that the innermost signal handler returned.
    pub fn handler_returned(&mut self) {
        let top = self.frames.len().wrapping_sub(1);
        if let Some((at, signal)) = self.signals.last_mut()
            && *at as usize == top
        {
            signal.returned = true;
        }
    }

    /// Returns the innermost frame that returns to a site.
    pub fn expecting(&mut self, site: SiteIdx) -> Option<usize> {
        self.link();
        known(&self.expecting, site.0)
    }

    /// Returns the innermost frame of a site's function.
    pub fn running(&mut self, site: CodeSite) -> Option<usize> {
        if !site.is_known() {
            return None;
        }
        let inline = self.frames.iter().enumerate().rev().take(NEAR);
        let mut inline = inline.filter(|(_, frame)| frame.function == site.function);
        if let Some((at, _)) = inline.next() {
            return Some(at);
        }
        self.link();
        known(&self.running, site.function.0)
    }

    /// Returns the innermost frame of a site's function, from position `base` on.
    pub fn running_from(&mut self, base: usize, site: CodeSite) -> Option<usize> {
        if self.frames.len() > base + NEAR {
            return self.running(site).filter(|&at| at >= base);
        }
        let above = self.frames.get(base..).unwrap_or(&[]);
        let found = above.iter().rposition(|frame| frame.function == site.function);
        found.filter(|_| site.is_known()).map(|at| at + base)
    }

    /// Returns the innermost signal handler that interrupted the thread at an address, or before
    /// the system call there.
    pub fn interrupted_at(&self, pc: Avma) -> Option<usize> {
        let last = self.interrupted_at.get(&pc)?.last()?;
        Some(*last as usize)
    }

    /// Returns the position of the frame whose return the innermost one shares; its own if it was
    /// called.
    pub fn base(&self) -> usize {
        self.frames.last().map_or(0, |frame| frame.base as usize)
    }

    /// Returns the number of recorded calls, and the log.
    pub fn finish(self) -> (u32, StackLog) {
        (self.began, self.log)
    }
}

impl Signal {
    /// Returns the addresses that the handler may return to.
    fn goes_back_to(self) -> impl Iterator<Item = Avma> {
        std::iter::once(self.interrupted).chain(self.restarts)
    }
}
