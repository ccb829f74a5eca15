//! Calls as they are kept: in batches, of which many are alike.
//!
//! A path makes the same calls each time, so they lie ready once, as a [`Pattern`], and a batch only tells
//! which, and from which instruction on. What is not the same each time is kept beside: the calls that those
//! of a batch are inside of, and how those end that outlast it.

mod order;
mod room;
mod stock;

use super::{Left, Tag};
use crate::pile::Pile;
pub(crate) use room::Room;
use std::collections::BTreeMap;
use stock::Role;
pub(super) use stock::{Added, Pattern, Stock};

/// The number of no call.
pub(super) const NO_PARENT: u32 = u32::MAX;

/// A call, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The first instruction, and one past the last.
    pub first: u64,
    pub end: u64,
    /// [`NO_PARENT`] for a root.
    pub parent: u32,
    /// In the forest's list.
    pub function: u32,
    pub entered: Tag,
    pub left: Left,
}

/// A call without instructions.
pub(super) const NO_NODE: Node = Node {
    first: 0,
    end: 0,
    parent: NO_PARENT,
    function: MAX_FUNCTIONS,
    entered: Tag::Unknown,
    left: Left::Unknown,
};

/// Calls by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    batches: Pile<Batch>,
    /// From which batch on the upper halves of the instructions' numbers are what; before the first, 0.
    upper: Vec<(u32, u32)>,
    /// For each batch: the calls that its outermost ones are inside of, then length and [`what`] of each that outlasts it.
    words: Pile<u32>,
    /// Where each [`SPAN`]th batch begins.
    begins: Vec<Begin>,
    /// The span of each [`STEP`]th call, as far as another one has begun behind it.
    directory: Vec<u32>,
    stock: Stock,
    len: usize,
    /// There are almost as many as can be told apart.
    full: bool,
    /// An instruction whose number has the upper half of that of the last batch.
    near: u64,
    /// The lengths that do not fit into a word, by where that is.
    lens: BTreeMap<u32, u64>,
    /// (call, depth) of those whose depth is a multiple of [`Nodes::DEPTHS`], but 0; ascending.
    depths: Vec<(u32, u32)>,
}

/// Calls that were made by one execution of a path, or one alone.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// The instruction that the pattern counts from, the lower half of its number: none of the calls begins before it, none of
    /// those before them behind it.
    lower: u32,
    pattern: Pattern,
}

/// Where a batch begins.
#[derive(Clone, Copy, Debug, Default)]
struct Begin {
    /// The number of its first call.
    call: u32,
    /// Where its words are.
    words: u32,
}

/// A batch that was looked up.
#[derive(Clone, Copy)]
struct Located {
    number: usize,
    batch: Batch,
    begin: Begin,
}

/// An open call, which its batch does not know the end of: where its words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lasting(u32);

const STEP: usize = 64;
const SPAN: usize = 8;
const FAR: u32 = u32::MAX;
/// The most functions that can be told apart.
pub(super) const MAX_FUNCTIONS: u32 = 1 << 26;

/// The function of a call, and in the low six bits how it was entered and left.
pub(super) fn what(function: u32, entered: Tag, left: Left) -> u32 {
    function << 6 | u32::from(entered.code()) << 3 | u32::from(left.code())
}

impl Nodes {
    /// A depth is noted when it is a multiple of this.
    pub const DEPTHS: u32 = 64;
    /// The most calls that can be told apart: each takes up to three words, which are numbered too.
    const MAX: usize = 1 << 30;
    /// A pattern has no more calls.
    pub const MOST_AT_ONCE: usize = 1 << 20;

    pub fn len(&self) -> usize {
        self.len
    }

    /// The calls that lie ready.
    pub fn stock(&mut self) -> &mut Stock {
        &mut self.stock
    }

    /// Appends a call of some depth. `None`: there are as many as can be told apart.
    #[inline]
    pub fn push(&mut self, node: Node, depth: u32) -> Option<(u32, Lasting)> {
        if self.full && self.len >= Self::MAX {
            return None;
        }
        let id = self.begin_batch(Pattern::SINGLE, 1, node.first);
        self.put_parent(node.parent);
        let lasting = self.put_lasting(what(node.function, node.entered, Left::Return));
        if node.end > node.first || node.left != Left::Return {
            self.close(lasting, node.first, node.end, node.left);
        }
        if depth.is_multiple_of(Self::DEPTHS) && depth != 0 {
            self.depths.push((id, depth));
        }
        Some((id, lasting))
    }

    /// Appends the calls of a pattern, `len` of them, counted from instruction `index`. Its parents are to be put next, then what
    /// outlasts it, and its depths be noted where [`Self::passes_noted_depth`] says so. Gives the number of the first.
    #[inline(always)]
    pub fn begin_batch(&mut self, pattern: Pattern, len: u32, index: u64) -> u32 {
        if self.batches.is_even::<SPAN>() {
            self.begin_span();
        }
        if (index ^ self.near) >> 32 != 0 {
            self.enter_upper(index);
        }
        self.batches.push(Batch {
            lower: index as u32,
            pattern,
        });
        let first = self.len as u32;
        self.len += len as usize;
        first
    }

    /// The batch that comes next is the first of a span.
    #[inline(never)]
    fn begin_span(&mut self) {
        // What begins a step and is not entered yet is in the span before.
        let (span, steps) = (self.begins.len() as u32, self.len.div_ceil(STEP));
        if self.directory.len() < steps {
            self.directory.resize(steps, span.saturating_sub(1));
        }
        self.begins.push(Begin {
            call: self.len as u32,
            words: self.words.len() as u32,
        });
        self.full = self.len > Self::MAX - (SPAN + 1) * Self::MOST_AT_ONCE;
    }

    /// The batch that comes next counts from an instruction whose number has another upper half.
    #[cold]
    fn enter_upper(&mut self, index: u64) {
        self.near = index;
        self.upper.push((self.batches.len() as u32, (index >> 32) as u32));
    }

    /// The next of the calls that the outermost ones of the batch are inside of.
    #[inline]
    pub fn put_parent(&mut self, parent: u32) {
        self.words.push(parent);
    }

    /// The next of the calls that outlast the batch; they are put as such that return.
    #[inline]
    pub fn put_lasting(&mut self, what: u32) -> Lasting {
        let at = self.words.len() as u32;
        self.words.push_two([0, what]);
        Lasting(at)
    }

    /// The depth of a call is to be noted that is up to `nested` calls inside of one of this depth.
    #[inline]
    pub fn passes_noted_depth(depth: u32, nested: u32) -> bool {
        depth % Self::DEPTHS + nested >= Self::DEPTHS
    }

    /// The calls that the last batch is inside of.
    pub fn last_parents(&self) -> impl Iterator<Item = u32> {
        let words = self.last().map_or(0..0, |last| self.parents(&last));
        words.map(|at| self.word(at))
    }

    /// Notes depths in the last batch; `outer` are those of the calls it is inside of.
    #[cold]
    pub fn note_depths(&mut self, outer: &[u32]) {
        let Some(last) = self.last() else { return };
        let mut depths: Vec<u32> = Vec::new();
        for (at, call) in self.stock.calls(last.batch.pattern).iter().enumerate() {
            let parent = match call.parent() {
                Ok(within) => depths.get(within as usize),
                Err(outside) => outer.get(outside as usize),
            };
            let depth = parent.map_or(0, |depth| depth + 1);
            depths.push(depth);
            if depth.is_multiple_of(Self::DEPTHS) {
                self.depths.push((last.begin.call + at as u32, depth));
            }
        }
    }

    /// Takes all calls away, but not what lies ready.
    pub fn clear(&mut self) {
        self.batches.clear();
        (self.full, self.near) = (false, 0);
        self.upper.clear();
        self.words.clear();
        self.begins.clear();
        self.directory.clear();
        self.len = 0;
        self.lens.clear();
        self.depths.clear();
    }

    /// As many calls as a path makes at most can be told apart.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.full
    }

    /// Takes the last call away, which is alone in its batch.
    pub fn pop(&mut self) {
        let Some(last) = self.last().filter(|last| last.batch.pattern == Pattern::SINGLE) else {
            return;
        };
        let Located { number, begin, .. } = last;
        self.batches.truncate(number);
        self.begins.truncate(number.div_ceil(SPAN));
        self.words.truncate(begin.words as usize);
        self.len = begin.call as usize;
        if self.upper.pop_if(|(from, _)| *from as usize == number).is_some() {
            let upper = self.upper.last().map_or(0, |&(_, upper)| upper);
            self.near = u64::from(upper) << 32;
        }
        self.directory.truncate(self.len.div_ceil(STEP));
        self.lens.split_off(&begin.words);
        self.depths.pop_if(|(node, _)| *node == begin.call);
    }

    /// The batch that has a call.
    #[inline]
    fn find(&self, id: u32) -> Option<Located> {
        let step = id as usize / STEP;
        let low = self.directory.get(step).or(self.directory.last());
        let low = low.map_or(0, |&low| low as usize);
        let high = self.directory.get(step + 1);
        let high = high.map_or(self.begins.len(), |&high| high as usize + 1);
        let begins = self.begins.get(low..high)?;
        let span = low + begins.partition_point(|begin| begin.call <= id).checked_sub(1)?;
        self.from(span)
            .find(|(_, end)| id < *end)
            .map(|(located, _)| located)
    }

    /// A batch by its number.
    #[inline]
    fn batch(&self, number: usize) -> Option<Located> {
        self.from(number / SPAN)
            .nth(number % SPAN)
            .map(|(located, _)| located)
    }

    fn last(&self) -> Option<Located> {
        self.batch(self.batches.len().checked_sub(1)?)
    }

    /// The batches from a span on, each with the number of the call behind its last.
    #[inline]
    fn from(&self, span: usize) -> impl Iterator<Item = (Located, u32)> {
        let mut begin = self.begins.get(span).copied().unwrap_or_default();
        let batches = (span * SPAN..).map_while(|number| Some((number, *self.batches.get(number)?)));
        batches.map(move |(number, batch)| {
            let located = Located { number, batch, begin };
            let (calls, words) = self.stock.size_of(batch.pattern);
            begin = Begin {
                call: begin.call + calls,
                words: begin.words + words,
            };
            (located, begin.call)
        })
    }

    /// The instruction that a batch counts from.
    #[inline]
    fn index(&self, located: &Located) -> u64 {
        self.index_of(located.number, &located.batch)
    }

    #[inline]
    fn index_of(&self, number: usize, batch: &Batch) -> u64 {
        let after = match self.upper.is_empty() {
            true => 0,
            false => self.upper.partition_point(|&(from, _)| from as usize <= number),
        };
        let upper = after.checked_sub(1).and_then(|last| self.upper.get(last));
        u64::from(upper.map_or(0, |&(_, upper)| upper)) << 32 | u64::from(batch.lower)
    }

    /// A call's batch, and the part it has there.
    fn ready(&self, id: u32) -> Option<(Located, &Role)> {
        let located = self.find(id)?;
        let calls = self.stock.calls(located.batch.pattern);
        Some((located, calls.get((id - located.begin.call) as usize)?))
    }

    fn word(&self, at: u32) -> u32 {
        self.words.get(at as usize).copied().unwrap_or_default()
    }

    /// Where the words of the calls are that a batch is inside of.
    fn parents(&self, located: &Located) -> std::ops::Range<u32> {
        let first = located.begin.words;
        first..first + self.stock.parents_of(located.batch.pattern)
    }

    fn parent_of(&self, located: &Located, call: &Role) -> u32 {
        match call.parent() {
            Ok(within) => located.begin.call + within,
            Err(outside) => self.word(located.begin.words + outside),
        }
    }

    /// Where the words of a call of a batch are, if it outlasts it.
    fn lasting(&self, located: &Located, call: &Role) -> Option<u32> {
        let before = call.lasting()?;
        Some(self.parents(located).end + 2 * before)
    }

    pub fn first(&self, id: u32) -> Option<u64> {
        let (located, call) = self.ready(id)?;
        Some(self.index(&located) + u64::from(call.first))
    }

    pub fn parent(&self, id: u32) -> u32 {
        self.ready(id)
            .map_or(NO_PARENT, |(located, call)| self.parent_of(&located, call))
    }

    /// See [`what`].
    pub fn what(&self, id: u32) -> u32 {
        let Some((located, call)) = self.ready(id) else {
            return what(MAX_FUNCTIONS - 1, Tag::Unknown, Left::Unknown);
        };
        let lasting = self.lasting(&located, call);
        lasting.map_or(call.what, |at| self.word(at + 1))
    }

    /// [`MAX_FUNCTIONS`] for a call that is none.
    pub fn function(&self, id: u32) -> u32 {
        match (id as usize) < self.len {
            true => self.what(id) >> 6,
            false => MAX_FUNCTIONS,
        }
    }

    pub fn get(&self, id: u32) -> Option<Node> {
        let (located, call) = self.ready(id)?;
        let (len, what) = match self.lasting(&located, call) {
            None => (u64::from(call.len), call.what),
            Some(at) => match self.word(at) {
                FAR => (self.lens.get(&at).copied()?, self.word(at + 1)),
                len => (u64::from(len), self.word(at + 1)),
            },
        };
        let first = self.index(&located) + u64::from(call.first);
        Some(Node {
            first,
            end: first + len,
            parent: self.parent_of(&located, call),
            function: what >> 6,
            entered: Tag::of((what >> 3 & 7) as u8),
            left: Left::of((what & 7) as u8),
        })
    }

    /// A call that was pushed alone turns out to be inside of another.
    pub fn set_parent(&mut self, id: u32, parent: u32) {
        let words = self.find(id).map(|located| located.begin.words);
        if let Some(word) = words.and_then(|at| self.words.get_mut(at as usize)) {
            *word = parent;
        }
    }

    pub fn set_function(&mut self, call: Lasting, function: u32) {
        if let Some(what) = self.words.get_mut(call.0 as usize + 1) {
            *what = function << 6 | *what & 0x3f;
        }
    }

    /// The call, which began with instruction `first`, has ended.
    #[inline(always)]
    pub fn close(&mut self, call: Lasting, first: u64, end: u64, left: Left) {
        let len = end.saturating_sub(first);
        if len >= u64::from(FAR) {
            return self.close_far(call, len, left);
        }
        if let Some(word) = self.words.get_mut(call.0 as usize) {
            *word = len as u32;
        }
        if left != Left::Return {
            self.set_left(call, left);
        }
    }

    /// The same for a length that does not fit.
    #[cold]
    fn close_far(&mut self, call: Lasting, len: u64, left: Left) {
        self.lens.insert(call.0, len);
        if let Some(word) = self.words.get_mut(call.0 as usize) {
            *word = FAR;
        }
        self.set_left(call, left);
    }

    #[inline(never)]
    fn set_left(&mut self, call: Lasting, left: Left) {
        if let Some(what) = self.words.get_mut(call.0 as usize + 1) {
            *what = *what & !7 | u32::from(left.code());
        }
    }

    /// How many calls it is inside of.
    pub fn depth(&self, id: u32) -> u32 {
        let (mut at, mut steps) = (id, 0);
        loop {
            let known = match self.depths.is_empty() {
                true => None,
                false => self.depths.binary_search_by_key(&at, |&(node, _)| node).ok(),
            };
            if let Some(&(_, depth)) = known.and_then(|known| self.depths.get(known)) {
                return depth + steps;
            }
            at = match self.parent(at) {
                NO_PARENT => return steps,
                parent => parent,
            };
            steps += 1;
        }
    }

    /// How many calls, from number `from` on, begin before instruction `index`; they ascend.
    pub fn begun(&self, from: usize, index: u64) -> usize {
        let all = 0..self.batches.len();
        let after = self
            .batches
            .partition_point(all, |number, batch| self.index_of(number, batch) < index);
        let last = after.checked_sub(1).and_then(|last| self.batch(last));
        let begun = last.map(|last| {
            let begin = self.index(&last);
            let calls = self.stock.calls(last.batch.pattern);
            let within = calls.partition_point(|call| begin + u64::from(call.first) < index);
            last.begin.call as usize + within
        });
        let begun = begun.unwrap_or(0);
        begun.saturating_sub(from)
    }

    pub fn shrink(&mut self) {
        self.batches.shrink();
        self.words.shrink();
        self.begins.shrink_to_fit();
        self.directory.shrink_to_fit();
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.batches.memory()
            + size_of_val(&*self.upper)
            + self.words.memory()
            + size_of_val(&*self.begins)
            + size_of_val(&*self.directory)
            + size_of_val(&*self.depths)
            + self.lens.len() * 16
            + self.stock.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn node(first: u64, end: u64, parent: u32) -> Node {
        Node {
            first,
            end,
            parent,
            function: 7,
            entered: Tag::Call,
            left: Left::Gap,
        }
    }

    #[test]
    fn what_is_packed_comes_back() {
        let mut nodes = Nodes::default();
        let far = u64::from(u32::MAX);
        let all = [
            node(5, far * 3, NO_PARENT),
            node(9, 9, 0),
            node(far + 5, far + 7, 0),
            node(far * 5, far * 6, 1),
        ];
        assert_eq!(size_of::<Batch>(), 8);
        let mut kept = Vec::new();
        for (at, node) in all.into_iter().enumerate() {
            let (id, lasting) = nodes.push(node, at as u32 * Nodes::DEPTHS).unwrap();
            assert_eq!(id, at as u32);
            kept.push(lasting);
        }
        for (at, node) in all.into_iter().enumerate() {
            assert_eq!(nodes.get(at as u32), Some(node));
            assert_eq!(nodes.depth(at as u32), at as u32 * Nodes::DEPTHS);
        }
        nodes.close(kept[1], 9, 20, Left::Unwound);
        nodes.set_function(kept[1], MAX_FUNCTIONS - 1);
        let found = nodes.get(1).unwrap();
        assert_eq!(
            (found.end, found.left, found.function, found.entered),
            (20, Left::Unwound, MAX_FUNCTIONS - 1, Tag::Call)
        );
        nodes.pop();
        assert_eq!((nodes.len(), nodes.get(3), nodes.begun(0, 9)), (3, None, 1));
        assert_eq!(
            (nodes.begun(0, 10), nodes.begun(1, 10), nodes.begun(2, 10)),
            (2, 1, 0)
        );
        assert_eq!(nodes.lens.len(), 1);
        nodes.clear();
        assert_eq!((nodes.len(), nodes.get(0), nodes.begun(0, 9)), (0, None, 0));
    }

    #[test]
    fn calls_go_and_come_over_the_steps_of_the_directory() {
        let mut nodes = Nodes::default();
        let last = STEP as u64 + 1;
        (0..=last).for_each(|first| {
            nodes.push(node(first, first, NO_PARENT), 0);
        });
        (0..3).for_each(|_| nodes.pop());
        assert_eq!((nodes.len(), nodes.get(STEP as u32 - 1)), (STEP - 1, None));
        for first in [500, 501, 502] {
            let (id, _) = nodes.push(node(first, first, NO_PARENT), 0).unwrap();
            assert_eq!(nodes.first(id), Some(first));
        }
        assert_eq!(
            (nodes.len(), nodes.first(STEP as u32 - 2)),
            (STEP + 2, Some(last - 3))
        );
    }
}
