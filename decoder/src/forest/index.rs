//! Where in the executions of a history calls begin and end: found by how deep they are.
//!
//! A call that begins at some depth ends where the depth is again as it was before, and is inside of the call that made the
//! depth what it is. So the depth before each [`SPAN`]th execution and the lowest one on the way to the next answer, with what the
//! executions of a span do, which call is inside of which, and where each ends.

use super::effects::{At, Effects, Event};
use super::spans::{SPAN, Span, Spans};
use super::stack::Log;
use super::{Left, Tag};
use crate::history::{Flow, Place};
use backtrail_pt::Avma;

/// Calls that are inside of a root, and the roots that it turned out to be inside of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    /// The first instruction.
    pub first: u64,
    /// The root as it began, and the position it has.
    pub root: u32,
    pub position: i32,
    /// The first of those adopted, see [`Index::adopted`]; they go on to those of the next tree, the innermost first.
    pub adopted: u32,
}

/// A root that was put around what was open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adopted {
    pub function: u32,
    /// The execution in which that was found out.
    pub execution: u64,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    spans: Spans,
    pub effects: Effects,
    pub trees: Vec<Tree>,
    adopted: Vec<Adopted>,
    /// Calls, as they began, that turned out to be ones of other functions; ascending.
    renamed: Vec<(u32, u32)>,
    /// Where the signals of [`Tag::Signal`] interrupted, by call as it began; ascending.
    interrupted: Vec<(u32, Avma)>,
    /// How many calls began.
    began: u32,
}

/// A call by how it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The call of this number, of those that began in the history.
    Begun(u32),
    /// The root of this number, of those that were adopted, and its tree.
    Adopted(u32, usize),
}

/// A call with all that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub first: u64,
    pub end: u64,
    /// The number of the call it is inside of, see [`Index::number`].
    pub parent: Option<u32>,
    pub function: u32,
    pub entered: Tag,
    pub left: Left,
}

impl Node {
    /// A call without instructions.
    pub const NONE: Self = Self {
        first: 0,
        end: 0,
        parent: None,
        function: u32::MAX,
        entered: Tag::Unknown,
        left: Left::Unknown,
    };
}

/// The calls that began last at the positions which are met on a pass through a span.
#[derive(Default)]
struct Recent(Vec<(u32, i32)>);

impl Recent {
    fn meet(&mut self, event: Event) {
        if let Event::Begin { call, position, .. } = event {
            while self.0.pop_if(|&mut (_, above)| above >= position).is_some() {}
            self.0.push((call, position));
        }
    }

    /// The one that is open at a position, where no higher one is.
    fn at(&self, position: i32) -> Option<u32> {
        let below = self.0.iter().rev().find(|&&(_, at)| at <= position);
        below.filter(|&&(_, at)| at == position).map(|&(call, _)| call)
    }
}

/// A call as it was found.
#[derive(Clone, Copy)]
struct Begun {
    position: i32,
    first: u64,
    function: u32,
    entered: Tag,
}

impl Index {
    /// Of all that has happened.
    pub fn new(began: u32, spans: Vec<Span>, mut effects: Effects, log: Log) -> Self {
        effects.shrink();
        let Log {
            trees,
            adopted,
            mut renamed,
            interrupted,
            ..
        } = log;
        // A stable sort: what came last holds.
        renamed.sort_by_key(|&(call, _)| call);
        Self {
            spans: Spans::new(spans),
            effects,
            trees,
            adopted,
            renamed,
            interrupted,
            began,
        }
    }

    /// What is known of each span is what is met on a pass over all.
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

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.began as usize + self.adopted.len()
    }

    /// The tree of a call that began.
    fn tree_of(&self, call: u32) -> Option<usize> {
        self.trees
            .partition_point(|tree| tree.root <= call)
            .checked_sub(1)
    }

    /// The first number of the adopted roots that are not of a tree nor of those before it.
    fn adopted_behind(&self, tree: usize) -> u32 {
        let next = self.trees.get(tree + 1);
        next.map_or(self.adopted.len() as u32, |next| next.adopted)
    }

    /// The number of a call among all, by their beginnings.
    pub fn number(&self, call: Which) -> u32 {
        match call {
            Which::Begun(call) => call + self.tree_of(call).map_or(0, |tree| self.adopted_behind(tree)),
            // The last that was found is the outermost.
            Which::Adopted(adopted, tree) => {
                let root = self.trees.get(tree).map_or(0, |tree| tree.root + tree.adopted);
                root + (self.adopted_behind(tree) - 1 - adopted)
            }
        }
    }

    /// The call of a number.
    pub fn which(&self, number: u32) -> Option<Which> {
        if number as usize >= self.len() {
            return None;
        }
        let tree = self
            .trees
            .partition_point(|tree| tree.root + tree.adopted <= number)
            .checked_sub(1)?;
        let (known, behind) = (self.trees.get(tree)?, self.adopted_behind(tree));
        let within = number - (known.root + known.adopted);
        Some(match within < behind - known.adopted {
            true => Which::Adopted(behind - 1 - within, tree),
            false => Which::Begun(number - behind),
        })
    }

    /// How many calls a call is inside of.
    pub fn depth(&self, call: Which, flow: &Flow) -> u32 {
        let (position, tree) = match call {
            Which::Begun(call) => {
                let begun = self.find(call, flow, |_| {}).map(|(begun, _)| begun.position);
                (begun, self.tree_of(call))
            }
            Which::Adopted(adopted, tree) => (self.position_of(adopted, tree), Some(tree)),
        };
        let outermost = tree.and_then(|tree| {
            let adopted = self.adopted_behind(tree) - self.trees.get(tree)?.adopted;
            Some(self.trees.get(tree)?.position - adopted as i32)
        });
        let depth = position.zip(outermost).map(|(at, outermost)| at - outermost);
        depth.unwrap_or(0).max(0) as u32
    }

    fn position_of(&self, adopted: u32, tree: usize) -> Option<i32> {
        let tree = self.trees.get(tree)?;
        Some(tree.position - 1 - (adopted - tree.adopted) as i32)
    }

    /// The root of a tree that was adopted to a position.
    fn adopted_at(&self, position: i32, tree: usize) -> Option<Which> {
        let known = self.trees.get(tree)?;
        let number = known.adopted + u32::try_from(known.position - 1 - position).ok()?;
        (number < self.adopted_behind(tree)).then_some(Which::Adopted(number, tree))
    }

    /// The adopted roots of a tree, the outermost first, each with its function.
    pub fn adopted_of(&self, tree: usize) -> impl Iterator<Item = (u32, u32)> {
        let adopted = self.adopted_before(tree)..self.adopted_behind(tree);
        adopted
            .rev()
            .filter_map(|number| Some((number, self.adopted.get(number as usize)?.function)))
    }

    /// How many roots of trees before one were adopted.
    pub fn adopted_before(&self, tree: usize) -> u32 {
        tree.checked_sub(1)
            .map_or(0, |before| self.adopted_behind(before))
    }

    /// Where the signal interrupted that the call of a number handles.
    pub fn interrupted(&self, number: u32) -> Option<Avma> {
        let Which::Begun(call) = self.which(number)? else {
            return None;
        };
        let found = self.interrupted.binary_search_by_key(&call, |&(call, _)| call);
        Some(self.interrupted.get(found.ok()?)?.1)
    }

    /// Before the first execution.
    pub fn start(&self) -> At {
        self.effects
            .at(0, 0, self.spans.get(0).map_or(0, |span| span.depth))
    }

    fn at(&self, span: usize) -> Option<At> {
        let known = self.spans.get(span)?;
        Some(self.effects.at(span * SPAN, known.began, known.depth))
    }

    fn start_of(&self, execution: usize, flow: &Flow) -> u64 {
        let place = Place { execution, within: 0 };
        flow.index_of(place).unwrap_or(flow.len())
    }

    /// Passes the executions from one on to the end of its span, with the instruction that each begins with.
    fn pass(&self, at: &mut At, flow: &Flow, mut visit: impl FnMut(u64, Event) -> bool) {
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

    /// Finds a call that began, and tells what `before` it in its span began. Gives where the execution begins in which it did.
    fn find(&self, call: u32, flow: &Flow, mut before: impl FnMut(Event)) -> Option<(Begun, At)> {
        let mut at = self.at(self.spans.of_call(call)?)?;
        let mut found = None;
        while found.is_none() {
            let here = at;
            let mut start = None;
            let executed = at.execution;
            self.effects.pass(&mut at, flow, |event| match event {
                Event::Begin {
                    call: begun,
                    position,
                    offset,
                    function,
                    entered,
                } if begun == call => {
                    let start = *start.get_or_insert_with(|| self.start_of(executed, flow));
                    let first = start + u64::from(offset);
                    let begun = Begun {
                        position,
                        first,
                        function,
                        entered,
                    };
                    found = Some((begun, here));
                }
                Event::Begin { .. } if found.is_none() => before(event),
                _ => {}
            });
            if at.execution == executed {
                return None;
            }
        }
        found
    }

    /// The instruction before which a call at a position ends, and how, from somewhere on after call `after` began, if any is given;
    /// `None`: it does not end.
    fn end(&self, mut at: At, position: i32, after: Option<u32>, flow: &Flow) -> Option<(u64, Left)> {
        let mut found = None;
        let mut begun = after.is_none();
        loop {
            let span = at.execution / SPAN;
            self.pass(&mut at, flow, |start, event| {
                match event {
                    Event::Begin { call, .. } => begun |= Some(call) == after,
                    Event::End {
                        position: ended,
                        offset,
                        left,
                    } if begun && ended == position && found.is_none() => {
                        found = Some((start + u64::from(offset), left));
                    }
                    Event::End { .. } => {}
                }
                found.is_none()
            });
            if found.is_some() {
                return found;
            }
            at = self.at(self.spans.next_low(span + 1, position)?)?;
        }
    }

    /// The last call that began at a position in the spans before one.
    fn last_at(&self, position: i32, before: usize, flow: &Flow) -> Option<u32> {
        let span = self.spans.last_low(before, position)?;
        let mut last = None;
        let mut at = self.at(span)?;
        self.pass(&mut at, flow, |_, event| {
            if let Event::Begin {
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

    /// The call that was open at a position of a tree before a span, or in it, as far as it was passed: `last` began there.
    fn open_at(
        &self,
        position: i32,
        tree: usize,
        span: usize,
        last: Option<u32>,
        flow: &Flow,
    ) -> Option<Which> {
        let root = self.trees.get(tree)?.root;
        let last = last.or_else(|| self.last_at(position, span, flow));
        // What was adopted was there before all others of its tree.
        let begun = last.filter(|&call| call >= root).map(Which::Begun);
        begun.or_else(|| self.adopted_at(position, tree))
    }

    /// The number of the call that a call is inside of.
    pub fn parent(&self, call: Which, flow: &Flow) -> Option<u32> {
        let parent = match call {
            Which::Adopted(adopted, tree) => self.adopted_at(self.position_of(adopted, tree)? - 1, tree),
            Which::Begun(call) => self.find_with_parent(call, flow)?.2,
        };
        parent.map(|parent| self.number(parent))
    }

    fn find_with_parent(&self, call: u32, flow: &Flow) -> Option<(Begun, At, Option<Which>)> {
        let mut recent = Recent::default();
        let (begun, at) = self.find(call, flow, |event| recent.meet(event))?;
        let above = begun.position - 1;
        let known = recent.at(above);
        let parent = self.open_at(above, self.tree_of(call)?, at.execution / SPAN, known, flow);
        Some((begun, at, parent))
    }

    /// All that is known of a call.
    pub fn node(&self, call: Which, flow: &Flow) -> Option<Node> {
        let (begun, parent, end) = match call {
            Which::Begun(call) => {
                let (begun, at, parent) = self.find_with_parent(call, flow)?;
                (begun, parent, self.end(at, begun.position, Some(call), flow))
            }
            Which::Adopted(adopted, tree) => {
                let (known, position) = (
                    self.adopted.get(adopted as usize)?,
                    self.position_of(adopted, tree)?,
                );
                let begun = Begun {
                    position,
                    first: self.trees.get(tree)?.first,
                    function: known.function,
                    entered: Tag::Adopted,
                };
                // Before it was adopted nothing so far out has ended in its tree.
                let span = usize::try_from(known.execution).ok()? / SPAN;
                let mut at = self.at(span)?;
                while (at.execution as u64) < known.execution {
                    self.effects.pass(&mut at, flow, |_| {});
                }
                let parent = self.adopted_at(position - 1, tree);
                (begun, parent, self.end(at, position, None, flow))
            }
        };
        let (end, left) = end.unwrap_or((flow.len(), Left::HistoryEnd));
        Some(Node {
            first: begun.first,
            end,
            parent: parent.map(|parent| self.number(parent)),
            function: self.function(call, begun.function),
            entered: begun.entered,
            left,
        })
    }

    /// The function of a call, which began as one of some function.
    pub fn function(&self, call: Which, began_as: u32) -> u32 {
        let Which::Begun(call) = call else { return began_as };
        let after = self.renamed.partition_point(|&(renamed, _)| renamed <= call);
        let last = after.checked_sub(1).and_then(|last| self.renamed.get(last));
        last.filter(|&&(renamed, _)| renamed == call)
            .map_or(began_as, |&(_, function)| function)
    }

    /// How many calls began before instruction `index`.
    pub fn begun(&self, index: u64, flow: &Flow) -> u32 {
        let trees = self.trees.partition_point(|tree| tree.first < index);
        let adopted = trees.checked_sub(1).map_or(0, |last| self.adopted_behind(last));
        let Some(mut at) = self.around(index, flow) else {
            return adopted;
        };
        let mut began = at.began;
        self.pass_until(&mut at, index, flow, |_, event| {
            began += u32::from(matches!(event, Event::Begin { .. }));
        });
        began + adopted
    }

    /// Before the span with the execution of the instruction before `index`, or of the last one.
    fn around(&self, index: u64, flow: &Flow) -> Option<At> {
        let before = index.checked_sub(1)?.min(flow.len().checked_sub(1)?);
        self.at(flow.place(before)?.execution / SPAN)
    }

    /// Passes a span as far as what happens before instruction `index`.
    fn pass_until(&self, at: &mut At, index: u64, flow: &Flow, mut visit: impl FnMut(u64, Event)) {
        self.pass(at, flow, |start, event| {
            let (Event::Begin { offset, .. } | Event::End { offset, .. }) = event;
            let happens = start + u64::from(offset) < index;
            if happens {
                visit(start, event);
            }
            happens
        });
    }

    /// The innermost call that is open when instruction `index` executes; `None`: there is none.
    pub fn open(&self, index: u64, flow: &Flow) -> Option<u32> {
        let mut at = self.around(index.checked_add(1)?, flow)?;
        let span = at.execution / SPAN;
        let (mut depth, mut recent) = (at.depth, Recent::default());
        self.pass_until(&mut at, index + 1, flow, |_, event| {
            depth = event.depth();
            recent.meet(event);
        });
        let tree = self.trees.partition_point(|tree| tree.first <= index);
        let known = recent.at(depth - 1);
        let found = self.open_at(depth - 1, tree.checked_sub(1)?, span, known, flow);
        found.map(|found| self.number(found))
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.spans.memory()
            + self.effects.memory()
            + size_of_val(&*self.trees)
            + size_of_val(&*self.adopted)
            + size_of_val(&*self.renamed)
            + size_of_val(&*self.interrupted)
    }
}
