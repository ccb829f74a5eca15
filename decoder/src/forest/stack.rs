//! The calls that are open at a point of a history, and the calls found so far.

mod act;

use super::nodes::{Lasting, NO_PARENT, Node, Nodes, Stock, what};
use super::places::Place;
use super::{Forest, Left, Room, Tag};
pub(super) use act::{Act, Level, Open};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// An open call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub first: u64,
    pub node: u32,
    lasting: Lasting,
    /// The number of the place where its return goes; [`NONE`]: not known (a root, a signal handler).
    pub returns_to: u32,
    /// The position of the frame whose return it shares, because it was jumped to; its own, if not.
    pub base: u32,
    /// Its function's number, when known.
    pub function: u32,
    /// How its call began, see [`what`].
    what: u32,
}

const _: () = assert!(size_of::<Frame>() == 32);

impl Frame {
    fn entered(&self) -> Tag {
        Tag::of((self.what >> 3 & 7) as u8)
    }

    /// It handles a signal, of which the stack has more.
    fn is_handler(&self) -> bool {
        self.entered() == Tag::Signal
    }
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

/// A new frame, before it has a node.
pub(super) struct Entry {
    pub to: Place,
    /// The number by which its node names the function.
    pub name: u32,
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
    nodes: Nodes,
    /// Roots that were put around others, with those: calls are not in the order of their beginnings.
    adopted: Vec<(u32, u32)>,
    interrupted: Vec<(u32, Avma)>,
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
    #[inline]
    pub fn push(&mut self, index: u64, new: Entry) -> Option<u32> {
        let at = self.frames.len() as u32;
        let (parent, base) = match self.frames.last() {
            Some(below) if new.tag == Tag::TailCall => (below.node, below.base),
            Some(below) => (below.node, at),
            None => (NO_PARENT, at),
        };
        let node = Node {
            first: index,
            end: index,
            parent,
            function: new.name,
            entered: new.tag,
            left: Left::Return,
        };
        let (node, lasting) = self.nodes.push(node, at)?;
        if let Some(signal) = new.signal {
            self.interrupted.push((node, signal.interrupted));
            self.signals.push((at, signal));
            for pc in signal.goes_back_to() {
                self.interrupted_at.entry(pc).or_default().push(at);
            }
        }
        self.frames.push(Frame {
            first: index,
            node,
            lasting,
            returns_to: new.returns_to,
            base,
            function: new.to.function,
            what: what(new.name, new.tag, Left::Return),
        });
        Some(node)
    }

    /// Puts a new root around all open calls: it began when the outermost did.
    pub fn adopt(&mut self, root: u32, to: Place, name: u32) {
        let first = self.nodes.first(root).unwrap_or(0);
        let adopted = self.push(
            first,
            Entry {
                to,
                name,
                tag: Tag::Adopted,
                returns_to: NONE,
                signal: None,
            },
        );
        if let Some(adopted) = adopted {
            self.nodes.set_parent(root, adopted);
            self.adopted.push((adopted, root));
        }
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

    /// Begins anew, with nothing open and no call.
    pub fn begin(&mut self) {
        while self.shut().is_some() {}
        self.nodes.clear();
    }

    /// Opens a call, before instruction `index`, that stands for any of a function, and of which nothing else is known.
    pub fn stand_in(&mut self, index: u64, function: u32) -> Option<u32> {
        let known = Place { id: NONE, function };
        let entry = Entry {
            to: known,
            name: 0,
            tag: Tag::Unknown,
            returns_to: NONE,
            signal: None,
        };
        self.push(index, entry)
    }

    /// The calls found so far.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Takes memory for calls from there.
    pub fn draw_from(&mut self, room: &Room) {
        self.nodes.draw_from(room);
    }

    /// The calls that lie ready.
    pub fn stock(&mut self) -> &mut Stock {
        self.nodes.stock()
    }

    /// The open calls, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Takes away the innermost frame, which is the first of each of its lists.
    #[inline]
    fn shut(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        self.unlink(&frame, self.frames.len());
        if frame.is_handler() {
            self.signal_ends();
        }
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
        self.nodes.close(frame.lasting, frame.first, index, left);
        Some(frame.node)
    }

    /// Closes the innermost call before instruction `index` by a return to the place of this number, when it was
    /// called from there and shares its return with none. Gives whether it did.
    #[inline]
    pub fn pop_called(&mut self, place: u32, index: u64) -> bool {
        let at = self.frames.len().wrapping_sub(1);
        let Some(&frame) = self.frames.last() else {
            return false;
        };
        if frame.returns_to != place || frame.base as usize != at || frame.first == index {
            return false;
        }
        self.frames.truncate(at);
        self.unlink(&frame, at);
        self.nodes.close(frame.lasting, frame.first, index, Left::Return);
        true
    }

    /// Closes calls until `len` are open.
    pub fn truncate(&mut self, len: usize, index: u64, left: Left) {
        while self.frames.len() > len {
            self.pop(index, left);
        }
    }

    /// The innermost call turns out to be one of another function: what it was was a stub.
    #[inline]
    pub fn rename(&mut self, to: Place, name: Option<u32>) {
        let Some(mut frame) = self.frames.pop() else {
            return;
        };
        self.unlink(&frame, self.frames.len());
        frame.function = to.function;
        if let Some(name) = name {
            frame.what = what(name, frame.entered(), Left::Return);
            self.nodes.set_function(frame.lasting, name);
        }
        self.frames.push(frame);
    }

    /// What a frame knows of the signal that it handles.
    pub fn signal(&self, at: usize) -> Option<Signal> {
        self.frames.get(at).filter(|frame| frame.is_handler())?;
        let known = self.signals.binary_search_by_key(&(at as u32), |&(at, _)| at);
        known.ok().and_then(|known| Some(self.signals.get(known)?.1))
    }

    /// The frame of a function that went on when the stack was switched to its own: it is no root, and yet where it returns
    /// is not known.
    pub fn is_resumed(&self, at: usize) -> bool {
        let frame = self.frames.get(at).filter(|_| at > 0);
        frame
            .is_some_and(|frame| frame.returns_to == NONE && !frame.is_handler() && frame.base as usize == at)
    }

    /// The innermost signal handler returned.
    pub fn handler_returned(&mut self) {
        if self.top().is_some_and(Frame::is_handler)
            && let Some((_, signal)) = self.signals.last_mut()
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

    /// Closes everything and puts the calls in order.
    pub fn finish(mut self, end: u64, functions: Vec<Avma>) -> Forest {
        let mut innermost = self.top().map(|top| top.node);
        self.truncate(0, end, Left::HistoryEnd);
        let (mut nodes, mut interrupted) = (self.nodes, self.interrupted);
        if !self.adopted.is_empty() {
            let renumbered = nodes.reorder(&self.adopted);
            for node in interrupted.iter_mut().map(|(node, _)| node).chain(&mut innermost) {
                *node = renumbered.number(*node);
            }
            interrupted.sort_unstable();
        }
        nodes.shrink();
        Forest {
            nodes,
            functions,
            interrupted,
            end,
            innermost,
            by_function: OnceLock::new(),
        }
    }
}

impl Signal {
    /// Where the handler may go back to.
    fn goes_back_to(self) -> impl Iterator<Item = Avma> {
        std::iter::once(self.interrupted).chain(self.restarts)
    }
}
