//! The calls that are open at a point of a history, and the calls found so far.

use super::nodes::{MAX_FUNCTIONS, NO_NODE, NO_PARENT, Node, Nodes, Ready};
use super::places::Place;
use super::{Forest, Left, Tag};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;

/// An open call.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    node: u32,
    first: u64,
    /// The number of the place where its return goes; [`NONE`]: not known (a root, a signal handler).
    pub returns_to: u32,
    /// The position of the frame whose return it shares, because it was jumped to; its own, if not.
    base: u32,
    /// Its function's number, when known.
    pub function: u32,
    /// The next frame below that expects a return to the same place, and that runs the same function.
    same_return: u32,
    same_function: u32,
    /// It handles a signal, of which the stack has more.
    handler: bool,
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

/// A new frame, before it has a node.
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
    /// The innermost frame that expects a return to a place, by the place's number, and that runs a
    /// function, by the function's.
    expecting: Vec<u32>,
    running: Vec<u32>,
    /// The frames that handle a signal, by where they go back to, ascending.
    interrupted_at: FxHashMap<Avma, Vec<u32>>,
    /// What the frames that handle a signal know, with their positions; ascending.
    signals: Vec<(u32, Signal)>,
    nodes: Nodes,
    /// A root was put around others: calls are not in the order of their beginnings.
    adopted: bool,
    numbers: Numbers,
    interrupted: Vec<(u32, Avma)>,
}

/// The functions that calls name by number.
#[derive(Debug, Default)]
struct Numbers {
    functions: Vec<Avma>,
    /// The number in `functions` of a place, by the place's number.
    of_place: Vec<u32>,
}

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

    /// Opens a call at instruction `index`, inside of the innermost one, if any; gives its node.
    /// `None`: there are as many calls as can be told apart.
    pub fn push(&mut self, index: u64, new: Entry) -> Option<u32> {
        let parent = self.frames.last().map_or(NO_PARENT, |frame| frame.node);
        let node = Node {
            first: index,
            end: index,
            parent,
            function: self.numbers.of(new.to)?,
            entered: new.tag,
            left: Left::HistoryEnd,
        };
        let node = self.nodes.push(node, self.frames.len() as u32)?;
        if let Some(signal) = new.signal {
            self.interrupted.push((node, signal.interrupted));
        }
        let base = match self.frames.last() {
            Some(below) if new.tag == Tag::TailCall => below.base,
            _ => self.frames.len() as u32,
        };
        self.open(
            Frame {
                node,
                first: index,
                returns_to: new.returns_to,
                base,
                function: new.to.function,
                same_return: NONE,
                same_function: NONE,
                handler: new.signal.is_some(),
            },
            new.signal,
        );
        Some(node)
    }

    /// Puts a new root around all open calls: it began when the outermost did.
    pub fn adopt(&mut self, root: u32, to: Place) {
        let first = self.nodes.first(root).unwrap_or(0);
        let adopted = self.push(
            first,
            Entry {
                to,
                tag: Tag::Adopted,
                returns_to: NONE,
                signal: None,
            },
        );
        if let Some(adopted) = adopted {
            self.nodes.set_parent(root, adopted);
            self.adopted = true;
        }
    }

    #[inline]
    fn open(&mut self, mut frame: Frame, signal: Option<Signal>) {
        let at = self.frames.len() as u32;
        // A frame that shares a return is found by the one it shares it with.
        if frame.returns_to != NONE
            && frame.base == at
            && let Some(head) = entry(&mut self.expecting, frame.returns_to)
        {
            frame.same_return = std::mem::replace(head, at);
        }
        self.run(&mut frame, at);
        if let Some(signal) = signal {
            self.signals.push((at, signal));
            for pc in signal.goes_back_to() {
                self.interrupted_at.entry(pc).or_default().push(at);
            }
        }
        self.frames.push(frame);
    }

    /// The frame that is to be at position `at`, the innermost, runs its function.
    #[inline]
    fn run(&mut self, frame: &mut Frame, at: u32) {
        if frame.function != Place::UNKNOWN
            && let Some(head) = entry(&mut self.running, frame.function)
        {
            frame.same_function = std::mem::replace(head, at);
        }
    }

    /// The innermost frame does not run its function any more.
    #[inline]
    fn stop(&mut self, frame: &Frame) {
        if frame.function != Place::UNKNOWN
            && let Some(head) = self.running.get_mut(frame.function as usize)
        {
            *head = frame.same_function;
        }
    }

    /// Calls that lie ready were made by the innermost one, and have ended.
    #[inline]
    pub fn append(&mut self, calls: &Ready<'_>, index: u64) {
        let parent = self.frames.last().map_or(NO_PARENT, |frame| frame.node);
        let depth = self.frames.len() as u32;
        self.nodes.append(calls, index, parent, depth);
    }

    /// Begins anew, with one call of which nothing is known.
    pub fn begin(&mut self) {
        while self.shut().is_some() {}
        self.nodes.clear();
        self.nodes.push(NO_NODE, 0);
        self.frames.push(Frame {
            node: 0,
            first: 0,
            returns_to: NONE,
            base: 0,
            function: Place::UNKNOWN,
            same_return: NONE,
            same_function: NONE,
            handler: false,
        });
    }

    /// The calls found so far.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Exchanges the functions' numbers with another's.
    pub fn swap_numbers(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.numbers, &mut other.numbers);
    }

    /// Takes away the innermost frame, which is the first of each of its lists.
    #[inline]
    fn shut(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        let at = self.frames.len() as u32;
        if frame.returns_to != NONE
            && frame.base == at
            && let Some(head) = self.expecting.get_mut(frame.returns_to as usize)
        {
            *head = frame.same_return;
        }
        self.stop(&frame);
        if frame.handler
            && let Some((_, signal)) = self.signals.pop()
        {
            for pc in signal.goes_back_to() {
                self.interrupted_at.get_mut(&pc).and_then(Vec::pop);
            }
        }
        Some(frame)
    }

    /// Closes the innermost call before instruction `index`; gives its node.
    ///
    /// A call without an instruction (something came in before its first) is none, and forgotten.
    #[inline]
    pub fn pop(&mut self, index: u64, left: Left) -> Option<u32> {
        let frame = self.shut()?;
        let newest = self.nodes.len() == frame.node as usize + 1;
        if newest && frame.first == index {
            self.nodes.pop();
            self.interrupted.pop_if(|(node, _)| *node == frame.node);
            return None;
        }
        self.nodes.close(frame.node, frame.first, index, left);
        Some(frame.node)
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
        self.stop(&frame);
        frame.function = to.function;
        self.run(&mut frame, self.frames.len() as u32);
        if let Some(id) = self.numbers.of(to) {
            self.nodes.set_function(frame.node, id);
        }
        self.frames.push(frame);
    }

    /// What a frame knows of the signal that it handles.
    pub fn signal(&self, at: usize) -> Option<Signal> {
        self.frames.get(at).filter(|frame| frame.handler)?;
        let known = self.signals.binary_search_by_key(&(at as u32), |&(at, _)| at);
        known.ok().and_then(|known| Some(self.signals.get(known)?.1))
    }

    /// The innermost signal handler returned.
    pub fn handler_returned(&mut self) {
        if self.top().is_some_and(|top| top.handler)
            && let Some((_, signal)) = self.signals.last_mut()
        {
            signal.returned = true;
        }
    }

    /// The innermost frame that expects a return to the place of this number.
    #[inline]
    pub fn expecting(&self, place: u32) -> Option<usize> {
        known(&self.expecting, place)
    }

    /// The innermost frame of the function that a place is in.
    pub fn running(&self, at: Place) -> Option<usize> {
        known(&self.running, at.function)
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

    /// Closes everything and puts the calls in order.
    pub fn finish(mut self, end: u64) -> Forest {
        self.truncate(0, end, Left::HistoryEnd);
        let mut forest = Forest {
            nodes: self.nodes,
            functions: self.numbers.functions,
            interrupted: self.interrupted,
            end,
        };
        if self.adopted {
            super::order::order(&mut forest);
        }
        forest.nodes.shrink();
        forest
    }
}

impl Numbers {
    fn of(&mut self, to: Place) -> Option<u32> {
        let next = self.functions.len() as u32;
        let known = entry(&mut self.of_place, to.id)?;
        if *known == NONE {
            if next == MAX_FUNCTIONS {
                return None;
            }
            self.functions.push(to.at);
            *known = next;
        }
        Some(*known)
    }
}

impl Signal {
    /// Where the handler may go back to.
    fn goes_back_to(self) -> impl Iterator<Item = Avma> {
        std::iter::once(self.interrupted).chain(self.restarts)
    }
}
