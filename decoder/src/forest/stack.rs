//! The calls that are open at a point of a history, and the calls found so far.

use super::{Forest, Left, NO_PARENT, Node, Tag};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// An open call.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    node: u32,
    /// Where its return goes; `None`: not known (a root, a signal handler).
    pub returns_to: Option<Avma>,
    /// The position of the frame whose return it shares, because it was jumped to; its own, if not.
    base: usize,
    /// The addresses of its function, when known.
    pub range: Option<Range<Avma>>,
    pub signal: Option<Signal>,
}

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

/// What an open frame is searched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// It expects a return to this address.
    Returns(Avma),
    /// Its function starts at this address.
    Runs(Avma),
    /// It handles a signal, and goes back to this address.
    Interrupted(Avma),
}

impl Frame {
    /// The keys of the frame at position `at`.
    fn keys(&self, at: usize) -> impl Iterator<Item = Key> + use<> {
        // A frame that shares a return is found by the one it shares it with.
        let returns = self.returns_to.filter(|_| self.base == at).map(Key::Returns);
        let runs = self.range.as_ref().map(|range| Key::Runs(range.start));
        let interrupted = self.signal.map(|signal| Key::Interrupted(signal.interrupted));
        let restarts = self
            .signal
            .and_then(|signal| signal.restarts)
            .map(Key::Interrupted);
        [returns, runs, interrupted, restarts].into_iter().flatten()
    }
}

/// A new frame, before it has a node.
pub(super) struct Entry {
    pub function: Avma,
    pub tag: Tag,
    pub returns_to: Option<Avma>,
    pub range: Option<Range<Avma>>,
    pub signal: Option<Signal>,
}

/// The open calls, innermost last, never empty once a root is open.
#[derive(Debug, Default)]
pub(super) struct Stack {
    frames: Vec<Frame>,
    /// Where in `frames` the frames are that have a key, ascending.
    index: FxHashMap<Key, Vec<usize>>,
    nodes: Vec<Node>,
    functions: Vec<Avma>,
    function_ids: FxHashMap<Avma, u32>,
    interrupted: Vec<(u32, Avma)>,
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
    pub fn push(&mut self, index: u64, entry: Entry) -> Option<u32> {
        let Entry {
            function,
            tag,
            returns_to,
            range,
            signal,
        } = entry;
        let parent = self.frames.last().map_or(NO_PARENT, |frame| frame.node);
        let node = u32::try_from(self.nodes.len())
            .ok()
            .filter(|&node| node != NO_PARENT)?;
        let function = self.function_id(function);
        let (entered, left) = (tag, Left::HistoryEnd);
        self.nodes.push(Node {
            first: index,
            end: index,
            parent,
            function,
            depth: 0,
            entered,
            left,
        });
        if let Some(signal) = signal {
            self.interrupted.push((node, signal.interrupted));
        }
        let base = match self.frames.last() {
            Some(below) if tag == Tag::TailCall => below.base,
            _ => self.frames.len(),
        };
        self.open(Frame {
            node,
            returns_to,
            base,
            range,
            signal,
        });
        Some(node)
    }

    /// Puts a new root around all open calls: it began when the outermost did.
    pub fn adopt(&mut self, root: u32, function: Avma, range: Option<Range<Avma>>) {
        let first = self.nodes.get(root as usize).map_or(0, |node| node.first);
        let entry = Entry {
            function,
            tag: Tag::Adopted,
            returns_to: None,
            range,
            signal: None,
        };
        let adopted = self.push(first, entry);
        if let (Some(adopted), Some(node)) = (adopted, self.nodes.get_mut(root as usize)) {
            node.parent = adopted;
        }
    }

    fn open(&mut self, frame: Frame) {
        let at = self.frames.len();
        for key in frame.keys(at) {
            self.index.entry(key).or_default().push(at);
        }
        self.frames.push(frame);
    }

    /// Takes away the innermost frame, which is the last of each of its lists.
    fn shut(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        for key in frame.keys(self.frames.len()) {
            self.index.get_mut(&key).and_then(Vec::pop);
        }
        Some(frame)
    }

    /// Closes the innermost call before instruction `index`; gives its node.
    ///
    /// A call without an instruction (something came in before its first) is none, and forgotten.
    pub fn pop(&mut self, index: u64, left: Left) -> Option<u32> {
        let frame = self.shut()?;
        let newest = self.nodes.len() == frame.node as usize + 1;
        let node = self.nodes.get_mut(frame.node as usize)?;
        if newest && node.first == index {
            self.nodes.pop();
            self.interrupted.pop_if(|(node, _)| *node == frame.node);
            return None;
        }
        (node.end, node.left) = (index, left);
        Some(frame.node)
    }

    /// Closes calls until `len` are open.
    pub fn truncate(&mut self, len: usize, index: u64, left: Left) {
        while self.frames.len() > len {
            self.pop(index, left);
        }
    }

    /// The innermost call turns out to be one of another function: what it was was a stub.
    pub fn rename(&mut self, function: Avma, range: Option<Range<Avma>>) {
        let Some(mut frame) = self.shut() else { return };
        frame.range = range;
        let id = self.function_id(function);
        if let Some(node) = self.nodes.get_mut(frame.node as usize) {
            node.function = id;
        }
        self.open(frame);
    }

    /// The innermost signal handler returned.
    pub fn handler_returned(&mut self) {
        if let Some(signal) = self.frames.last_mut().and_then(|frame| frame.signal.as_mut()) {
            signal.returned = true;
        }
    }

    /// The innermost frame that expects a return to an address.
    pub fn expecting(&self, to: Avma) -> Option<usize> {
        self.last(Key::Returns(to))
    }

    /// The innermost frame of the function that starts at an address.
    pub fn running(&self, function: Avma) -> Option<usize> {
        self.last(Key::Runs(function))
    }

    /// The innermost signal handler that interrupted the thread at an address, or before the system
    /// call there.
    pub fn interrupted_at(&self, pc: Avma) -> Option<usize> {
        self.last(Key::Interrupted(pc))
    }

    fn last(&self, key: Key) -> Option<usize> {
        self.index.get(&key)?.last().copied()
    }

    /// The position of the frame whose return the innermost one shares: itself, if it was called.
    pub fn base(&self) -> usize {
        self.frames.last().map_or(0, |frame| frame.base)
    }

    fn function_id(&mut self, function: Avma) -> u32 {
        let next = self.functions.len() as u32;
        let functions = &mut self.functions;
        *self.function_ids.entry(function).or_insert_with(|| {
            functions.push(function);
            next
        })
    }

    /// Closes everything and puts the calls in order.
    pub fn finish(mut self, end: u64) -> Forest {
        self.truncate(0, end, Left::HistoryEnd);
        super::order::order(self.nodes, self.functions, self.interrupted, end)
    }
}
