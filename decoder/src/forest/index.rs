//! Finds the start, end and parent of calls by their depth.
//!
//! A call ends where the depth is again that before its start, and its parent is the call that made
//! that depth. So the depth before each span of [`SPAN`] executions, the lowest depth in it, and
//! the effects of its executions determine each call.

use super::effects::{CallEvent, EffectCursor, EffectStore};
use super::spans::{SPAN, Span, Spans};
use super::stack::{CallTree, StackLog, SyntheticRoot};
use super::{EntryKind, Left};
use crate::forest::code_sites::SiteIdx;
use crate::history::{Flow, FlowPosition};
use backtrail_pt::Avma;

#[derive(Debug, Default)]
pub(super) struct Index {
    spans: Spans,
    pub effects: EffectStore,
    pub trees: Vec<CallTree>,
    synthetic: Vec<SyntheticRoot>,
    /// Recorded calls whose function was changed later; ascending.
    renamed: Vec<(u32, SiteIdx)>,
    /// The interrupted addresses of [`EntryKind::Signal`] calls, by recorded call; ascending.
    interrupted: Vec<(u32, Avma)>,
    /// The number of recorded calls.
    began: u32,
}

/// A reference to a call by its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallRef {
    /// The call of this number, of those that started in the history.
    Recorded(u32),
    /// The synthetic root of this number, and its tree.
    Synthetic(u32, usize),
}

/// A call with all its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub first: u64,
    pub end: u64,
    /// The number of the enclosing call, see [`Index::number`].
    pub parent: Option<u32>,
    pub function: SiteIdx,
    pub entered: EntryKind,
    pub left: Left,
}

impl Node {
    /// A call without instructions.
    pub const NONE: Self = Self {
        first: 0,
        end: 0,
        parent: None,
        function: SiteIdx::NONE,
        entered: EntryKind::Unknown,
        left: Left::Unknown,
    };
}

/// The last calls at the positions visited in a span.
#[derive(Default)]
struct Recent(Vec<(u32, i32)>);

impl Recent {
    fn push(&mut self, event: CallEvent) {
        if let CallEvent::Begin { call, position, .. } = event {
            while self.0.pop_if(|&mut (_, above)| above >= position).is_some() {}
            self.0.push((call, position));
        }
    }

    /// Returns the open call at a position, if no higher one is open.
    fn at(&self, position: i32) -> Option<u32> {
        let below = self.0.iter().rev().find(|&&(_, at)| at <= position);
        below.filter(|&&(_, at)| at == position).map(|&(call, _)| call)
    }
}

/// The start of a recorded call.
#[derive(Clone, Copy)]
struct CallStart {
    position: i32,
    first: u64,
    function: SiteIdx,
    entered: EntryKind,
}

impl Index {
    /// Builds the index from the spans, the effects and the log.
    pub fn new(began: u32, spans: Vec<Span>, mut effects: EffectStore, log: StackLog) -> Self {
        effects.shrink();
        let StackLog {
            trees,
            synthetic,
            mut renamed,
            interrupted,
            ..
        } = log;
        // A stable sort: the last change wins.
        renamed.sort_by_key(|&(call, _)| call);
        Self {
            spans: Spans::new(spans),
            effects,
            trees,
            synthetic,
            renamed,
            interrupted,
            began,
        }
    }

    /// Checks the spans against a pass over all executions.
    #[cfg(test)]
    pub fn check(&self, flow: &Flow) {
        let mut at = self.start();
        for (number, span) in self.spans.iter().enumerate() {
            assert_eq!(
                (at.began, at.depth),
                (span.began, span.depth),
                "before span {number}"
            );
            let (mut lowest, mut depth) = (at.depth, at.depth);
            self.pass(&mut at, flow, |_, event| {
                depth = event.depth();
                lowest = lowest.min(depth);
                true
            });
            assert_eq!(lowest, span.lowest, "in span {number}");
        }
    }

    /// Returns the number of calls.
    pub fn len(&self) -> usize {
        self.began as usize + self.synthetic.len()
    }

    /// Returns the tree of a recorded call.
    fn tree_of(&self, call: u32) -> Option<usize> {
        self.trees
            .partition_point(|tree| tree.root <= call)
            .checked_sub(1)
    }

    /// Returns the number of synthetic roots in the trees up to this one.
    fn synthetic_through(&self, tree: usize) -> u32 {
        let next = self.trees.get(tree + 1);
        next.map_or(self.synthetic.len() as u32, |next| next.synthetic)
    }

    /// Returns the number of a call among all, by their starts.
    pub fn number(&self, call: CallRef) -> u32 {
        match call {
            CallRef::Recorded(call) => {
                call + self.tree_of(call).map_or(0, |tree| self.synthetic_through(tree))
            }
            // The last one found is the outermost.
            CallRef::Synthetic(synthetic, tree) => {
                let root = self.trees.get(tree).map_or(0, |tree| tree.root + tree.synthetic);
                root + (self.synthetic_through(tree) - 1 - synthetic)
            }
        }
    }

    /// Returns the call of a number.
    pub fn call_ref(&self, number: u32) -> Option<CallRef> {
        if number as usize >= self.len() {
            return None;
        }
        let tree = self
            .trees
            .partition_point(|tree| tree.root + tree.synthetic <= number)
            .checked_sub(1)?;
        let (known, through) = (self.trees.get(tree)?, self.synthetic_through(tree));
        let within = number - (known.root + known.synthetic);
        Some(match within < through - known.synthetic {
            true => CallRef::Synthetic(through - 1 - within, tree),
            false => CallRef::Recorded(number - through),
        })
    }

    /// Returns the number of enclosing calls.
    pub fn depth(&self, call: CallRef, flow: &Flow) -> u32 {
        let (position, tree) = match call {
            CallRef::Recorded(call) => {
                let start = self.find(call, flow, |_| {}).map(|(start, _)| start.position);
                (start, self.tree_of(call))
            }
            CallRef::Synthetic(synthetic, tree) => (self.position_of(synthetic, tree), Some(tree)),
        };
        let outermost = tree.and_then(|tree| {
            let synthetic = self.synthetic_through(tree) - self.trees.get(tree)?.synthetic;
            Some(self.trees.get(tree)?.position - synthetic as i32)
        });
        let depth = position.zip(outermost).map(|(at, outermost)| at - outermost);
        depth.unwrap_or(0).max(0) as u32
    }

    fn position_of(&self, synthetic: u32, tree: usize) -> Option<i32> {
        let tree = self.trees.get(tree)?;
        Some(tree.position - 1 - (synthetic - tree.synthetic) as i32)
    }

    /// Returns the synthetic root of a tree at a position.
    fn synthetic_at(&self, position: i32, tree: usize) -> Option<CallRef> {
        let known = self.trees.get(tree)?;
        let number = known.synthetic + u32::try_from(known.position - 1 - position).ok()?;
        (number < self.synthetic_through(tree)).then_some(CallRef::Synthetic(number, tree))
    }

    /// Returns the synthetic roots of a tree, the outermost first, each with its function.
    pub fn synthetic_of(&self, tree: usize) -> impl Iterator<Item = (u32, SiteIdx)> {
        let synthetic = self.synthetic_before(tree)..self.synthetic_through(tree);
        synthetic
            .rev()
            .filter_map(|number| Some((number, self.synthetic.get(number as usize)?.function)))
    }

    /// Returns the number of synthetic roots in the trees before this one.
    pub fn synthetic_before(&self, tree: usize) -> u32 {
        tree.checked_sub(1)
            .map_or(0, |before| self.synthetic_through(before))
    }

    /// Returns the address that a signal interrupted, by the number of its handler's call.
    pub fn interrupted(&self, number: u32) -> Option<Avma> {
        let CallRef::Recorded(call) = self.call_ref(number)? else {
            return None;
        };
        let found = self.interrupted.binary_search_by_key(&call, |&(call, _)| call);
        Some(self.interrupted.get(found.ok()?)?.1)
    }

    /// Returns a cursor before the first execution.
    pub fn start(&self) -> EffectCursor {
        self.effects
            .at(0, 0, self.spans.get(0).map_or(0, |span| span.depth))
    }

    fn at(&self, span: usize) -> Option<EffectCursor> {
        let known = self.spans.get(span)?;
        Some(self.effects.at(span * SPAN, known.began, known.depth))
    }

    fn start_of(&self, execution: usize, flow: &Flow) -> u64 {
        let site = FlowPosition { execution, within: 0 };
        flow.index_of(site).unwrap_or(flow.len())
    }

    /// Visits the executions up to the end of the span, each with its first instruction.
    fn pass(&self, at: &mut EffectCursor, flow: &Flow, mut visit: impl FnMut(u64, CallEvent) -> bool) {
        let end = (at.execution / SPAN + 1) * SPAN;
        let mut start = self.start_of(at.execution, flow);
        let mut goes_on = true;
        while goes_on
            && at.execution < end
            && let Some(&path) = flow.executions().get(at.execution)
        {
            self.effects
                .pass(at, flow, |event| goes_on &= visit(start, event));
            start += flow.paths.count(path);
        }
    }

    /// Finds a recorded call, and visits the calls `before` it in its span. Returns a cursor before
    /// its execution.
    fn find(
        &self,
        call: u32,
        flow: &Flow,
        mut before: impl FnMut(CallEvent),
    ) -> Option<(CallStart, EffectCursor)> {
        let mut at = self.at(self.spans.of_call(call)?)?;
        let mut found = None;
        while found.is_none() {
            let before_execution = at;
            let mut start = None;
            let executed = at.execution;
            self.effects.pass(&mut at, flow, |event| match event {
                CallEvent::Begin {
                    call: recorded,
                    position,
                    offset,
                    function,
                    entered,
                } if recorded == call => {
                    let start = *start.get_or_insert_with(|| self.start_of(executed, flow));
                    let first = start + u64::from(offset);
                    let start = CallStart {
                        position,
                        first,
                        function,
                        entered,
                    };
                    found = Some((start, before_execution));
                }
                CallEvent::Begin { .. } if found.is_none() => before(event),
                _ => {}
            });
            if at.execution == executed {
                return None;
            }
        }
        found
    }

    /// Returns where and how a call at a position ends, after call `after` has started if given.
    /// `None`: it does not end.
    fn end(
        &self,
        mut at: EffectCursor,
        position: i32,
        after: Option<u32>,
        flow: &Flow,
    ) -> Option<(u64, Left)> {
        let mut found = None;
        let mut has_begun = after.is_none();
        loop {
            let span = at.execution / SPAN;
            self.pass(&mut at, flow, |start, event| {
                match event {
                    CallEvent::Begin { call, .. } => has_begun |= Some(call) == after,
                    CallEvent::End {
                        position: ended,
                        offset,
                        left,
                    } if has_begun && ended == position && found.is_none() => {
                        found = Some((start + u64::from(offset), left));
                    }
                    CallEvent::End { .. } => {}
                }
                found.is_none()
            });
            if found.is_some() {
                return found;
            }
            at = self.at(self.spans.next_low(span + 1, position)?)?;
        }
    }

    /// Returns the last call that started at a position in the spans before one.
    fn last_at(&self, position: i32, before: usize, flow: &Flow) -> Option<u32> {
        let span = self.spans.last_low(before, position)?;
        let mut last = None;
        let mut at = self.at(span)?;
        self.pass(&mut at, flow, |_, event| {
            if let CallEvent::Begin {
                call, position: at, ..
            } = event
                && at == position
            {
                last = Some(call);
            }
            true
        });
        last
    }

    /// Returns the call that is open at a position of a tree, in or before a span. `last` is the
    /// call that started there in the visited part of the span.
    fn open_at(
        &self,
        position: i32,
        tree: usize,
        span: usize,
        last: Option<u32>,
        flow: &Flow,
    ) -> Option<CallRef> {
        let root = self.trees.get(tree)?.root;
        let last = last.or_else(|| self.last_at(position, span, flow));
        // The synthetic roots precede all other calls of their tree.
        let recorded = last.filter(|&call| call >= root).map(CallRef::Recorded);
        recorded.or_else(|| self.synthetic_at(position, tree))
    }

    /// Returns the number of the enclosing call.
    pub fn parent(&self, call: CallRef, flow: &Flow) -> Option<u32> {
        let parent = match call {
            CallRef::Synthetic(synthetic, tree) => {
                self.synthetic_at(self.position_of(synthetic, tree)? - 1, tree)
            }
            CallRef::Recorded(call) => self.find_with_parent(call, flow)?.2,
        };
        parent.map(|parent| self.number(parent))
    }

    fn find_with_parent(&self, call: u32, flow: &Flow) -> Option<(CallStart, EffectCursor, Option<CallRef>)> {
        let mut recent = Recent::default();
        let (start, at) = self.find(call, flow, |event| recent.push(event))?;
        let above = start.position - 1;
        let known = recent.at(above);
        let parent = self.open_at(above, self.tree_of(call)?, at.execution / SPAN, known, flow);
        Some((start, at, parent))
    }

    /// Returns all properties of a call.
    pub fn node(&self, call: CallRef, flow: &Flow) -> Option<Node> {
        let (start, parent, end) = match call {
            CallRef::Recorded(call) => {
                let (start, at, parent) = self.find_with_parent(call, flow)?;
                (start, parent, self.end(at, start.position, Some(call), flow))
            }
            CallRef::Synthetic(synthetic, tree) => {
                let (known, position) = (
                    self.synthetic.get(synthetic as usize)?,
                    self.position_of(synthetic, tree)?,
                );
                let start = CallStart {
                    position,
                    first: self.trees.get(tree)?.first,
                    function: known.function,
                    entered: EntryKind::Adopted,
                };
                // Before a synthetic root was found, no call at its position ended in its tree.
                let span = usize::try_from(known.execution).ok()? / SPAN;
                let mut at = self.at(span)?;
                while (at.execution as u64) < known.execution {
                    self.effects.pass(&mut at, flow, |_| {});
                }
                let parent = self.synthetic_at(position - 1, tree);
                (start, parent, self.end(at, position, None, flow))
            }
        };
        let (end, left) = end.unwrap_or((flow.len(), Left::HistoryEnd));
        Some(Node {
            first: start.first,
            end,
            parent: parent.map(|parent| self.number(parent)),
            function: self.function(call, start.function),
            entered: start.entered,
            left,
        })
    }

    /// Returns the function of a call, which may have changed since its start.
    pub fn function(&self, call: CallRef, began_as: SiteIdx) -> SiteIdx {
        let CallRef::Recorded(call) = call else {
            return began_as;
        };
        let after = self.renamed.partition_point(|&(renamed, _)| renamed <= call);
        let last = after.checked_sub(1).and_then(|last| self.renamed.get(last));
        last.filter(|&&(renamed, _)| renamed == call)
            .map_or(began_as, |&(_, function)| function)
    }

    /// Returns the number of calls that started before instruction `index`.
    pub fn calls_before(&self, index: u64, flow: &Flow) -> u32 {
        let trees = self.trees.partition_point(|tree| tree.first < index);
        let synthetic = trees
            .checked_sub(1)
            .map_or(0, |last| self.synthetic_through(last));
        let Some(mut at) = self.around(index, flow) else {
            return synthetic;
        };
        let mut began = at.began;
        self.pass_until(&mut at, index, flow, |_, event| {
            began += u32::from(matches!(event, CallEvent::Begin { .. }));
        });
        began + synthetic
    }

    /// Returns a cursor before the span of the instruction before `index`, or of the last
    /// instruction.
    fn around(&self, index: u64, flow: &Flow) -> Option<EffectCursor> {
        let before = index.checked_sub(1)?.min(flow.len().checked_sub(1)?);
        self.at(flow.position(before)?.execution / SPAN)
    }

    /// Visits a span up to instruction `index`.
    fn pass_until(
        &self,
        at: &mut EffectCursor,
        index: u64,
        flow: &Flow,
        mut visit: impl FnMut(u64, CallEvent),
    ) {
        self.pass(at, flow, |start, event| {
            let (CallEvent::Begin { offset, .. } | CallEvent::End { offset, .. }) = event;
            let happens = start + u64::from(offset) < index;
            if happens {
                visit(start, event);
            }
            happens
        });
    }

    /// Returns the innermost call that is open at instruction `index`; `None`: there is none.
    pub fn open(&self, index: u64, flow: &Flow) -> Option<u32> {
        let mut at = self.around(index.checked_add(1)?, flow)?;
        let span = at.execution / SPAN;
        let (mut depth, mut recent) = (at.depth, Recent::default());
        self.pass_until(&mut at, index + 1, flow, |_, event| {
            depth = event.depth();
            recent.push(event);
        });
        let tree = self.trees.partition_point(|tree| tree.first <= index);
        let known = recent.at(depth - 1);
        let found = self.open_at(depth - 1, tree.checked_sub(1)?, span, known, flow);
        found.map(|found| self.number(found))
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        self.spans.memory()
            + self.effects.memory()
            + size_of_val(&*self.trees)
            + size_of_val(&*self.synthetic)
            + size_of_val(&*self.renamed)
            + size_of_val(&*self.interrupted)
    }
}
