//! The call forest: which calls the instructions of a history belong to.

mod build;
mod by_function;
mod effects;
mod index;
mod nodes;
mod places;
mod spans;
mod stack;

use crate::history::Flow;
use crate::{Canceled, History, Watch};
use backtrail_pt::Avma;
pub(crate) use build::Builder;
use by_function::ByFunction;
use index::{Index, Node};
use nodes::Nodes;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Where functions lie: told to the decoder, which knows no symbols.
pub trait Functions: Sync {
    /// The addresses of the function that `pc` is in; `None`: unknown.
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>>;

    /// Where that function is entered; not in its range when `pc` is in a part that lies apart.
    fn entry_of(&self, pc: Avma) -> Option<Avma> {
        self.range_of(pc).map(|range| range.start)
    }

    /// `pc` is in a procedure linkage stub: its jump is no call of its own.
    fn is_plt(&self, _pc: Avma) -> bool {
        false
    }

    /// `pc` is in the dynamic linker's lazy resolver, which ends in a jump to the function resolved.
    fn is_resolver(&self, _pc: Avma) -> bool {
        false
    }
}

/// No function is known: only calls and returns shape the forest.
impl Functions for () {
    fn range_of(&self, _pc: Avma) -> Option<Range<Avma>> {
        None
    }
}

/// A call of one [`Forest`]; ids ascend with [`Call::first`], parents before children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u32);

impl CallId {
    /// Its number in its forest, counted from 0 in the order of [`Forest::ids`].
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// One execution of a function, as far as history has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The call it is inside of; `None`: a root.
    pub parent: Option<CallId>,
    /// Its first instruction.
    pub first: u64,
    /// One past the last instruction of it and of its callees.
    pub end: u64,
    /// Its entry address when its beginning is in the history, else any address in it.
    pub function: Avma,
    /// How it began.
    pub entered: Entered,
    /// How it ended.
    pub left: Left,
}

impl Call {
    /// It may be the rest of an earlier call: it was running behind a gap or resumed, or flow came to it in a way that no rule
    /// explains.
    #[must_use]
    pub fn may_be_rest(&self) -> bool {
        matches!(
            self.entered,
            Entered::AfterGap | Entered::Resumed | Entered::Unknown
        )
    }

    /// Nothing that it is inside of has called it.
    #[must_use]
    pub fn is_outermost(&self) -> bool {
        self.parent.is_none() || self.entered == Entered::Resumed
    }
}

/// How a call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// Called by the instruction at this index.
    Call {
        /// The call instruction.
        site: u64,
    },
    /// Jumped to by the instruction at this index, at the end of the calling function, whose return
    /// it shares.
    TailCall {
        /// The jump.
        site: u64,
    },
    /// A signal was delivered.
    Signal {
        /// The instruction that runs when the handler returns.
        interrupted: Avma,
    },
    /// It was running when its callee, which is in the history from its middle or its beginning on,
    /// was called: seen by the return into it.
    Adopted,
    /// It was running when history began.
    HistoryStart,
    /// It was running after a gap.
    AfterGap,
    /// It was running before, and went on here when another function switched to its stack: a coroutine. Its callers are not
    /// those that it is inside of.
    Resumed,
    /// Flow came here in a way no rule explains.
    Unknown,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// By a return instruction.
    Return,
    /// By a jump to another function, which shared its return, or out of a part of a function that
    /// lies apart.
    TailCall,
    /// Unwound: `longjmp`, or an exception.
    Unwound,
    /// A signal handler, by `rt_sigreturn`.
    SignalReturn,
    /// Flow went elsewhere in a way no rule explains.
    Unknown,
    /// It had not ended when history ended.
    HistoryEnd,
    /// It had not ended at a gap.
    Gap,
}

/// All calls of a history, in the order of their beginnings, callers before callees.
///
/// It is an index over the history: what each path does to the open calls, and how deep they are from place to place. A question
/// about a call looks at some hundreds of executions. After questions about many, all calls are told one by one, which
/// takes 24 bytes each, and 4 more once [`Forest::by_function`] was asked for.
#[derive(Debug, Default)]
pub struct Forest {
    flow: Arc<Flow>,
    index: Index,
    /// The functions that calls name by number.
    functions: Vec<Avma>,
    /// Questions about calls so far, as long as they are few.
    asked: AtomicUsize,
    /// Made when many were asked for.
    nodes: OnceLock<Nodes>,
    /// Made when it is first asked for.
    by_function: OnceLock<ByFunction>,
}

/// [`Entered`] without its values: a site is the instruction before the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Call,
    TailCall,
    Signal,
    Adopted,
    HistoryStart,
    AfterGap,
    Unknown,
    Resumed,
}

impl Tag {
    const ALL: [Self; 8] = [
        Self::Call,
        Self::TailCall,
        Self::Signal,
        Self::Adopted,
        Self::HistoryStart,
        Self::AfterGap,
        Self::Unknown,
        Self::Resumed,
    ];

    /// Its number, below 8.
    fn code(self) -> u32 {
        self as u32
    }

    fn of(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Unknown)
    }
}

impl Left {
    const ALL: [Self; 7] = [
        Self::Return,
        Self::TailCall,
        Self::Unwound,
        Self::SignalReturn,
        Self::Unknown,
        Self::HistoryEnd,
        Self::Gap,
    ];

    /// Its number, below 8.
    fn code(self) -> u32 {
        self as u32
    }

    fn of(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Unknown)
    }
}

impl Forest {
    /// Finds the calls of a history.
    pub fn build(history: &History, functions: &dyn Functions, watch: &Watch<'_>) -> Result<Self, Canceled> {
        build::build(history, functions, watch)
    }

    fn new(flow: Arc<Flow>, index: Index, functions: Vec<Avma>) -> Self {
        Self {
            flow,
            index,
            functions,
            ..Self::default()
        }
    }

    /// How many calls there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// There is none: the history is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The call with this [`CallId::number`].
    #[must_use]
    pub fn id(&self, number: u32) -> Option<CallId> {
        ((number as usize) < self.len()).then_some(CallId(number))
    }

    /// All calls, by their first instruction.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = CallId> + use<> {
        (0..self.len() as u32).map(CallId)
    }

    /// The innermost call that executes instruction `index`; at the end of history, the one of the
    /// last instruction, or the one a signal handler that ended there went back to. `None` when the history is empty.
    #[must_use]
    pub fn call_at(&self, index: u64) -> Option<CallId> {
        let last = self.flow.len().checked_sub(1)?;
        let at_end = || self.index.open(self.flow.len(), &self.flow);
        let found = match index {
            index if index > last => at_end().or_else(|| self.index.open(last, &self.flow)),
            index => self.index.open(index, &self.flow),
        };
        found.map(CallId)
    }

    /// The last call that began before instruction `index`.
    #[must_use]
    pub fn last_begun(&self, index: u64) -> Option<CallId> {
        let begun = self.index.begun(index, &self.flow);
        begun.checked_sub(1).map(CallId)
    }

    /// A call; for an id of another forest that this one has not, one without instructions.
    #[must_use]
    pub fn call(&self, id: CallId) -> Call {
        let node = self.node(id).unwrap_or(Node::NONE);
        let site = node.first.wrapping_sub(1);
        let entered = match node.entered {
            Tag::Call => Entered::Call { site },
            Tag::TailCall => Entered::TailCall { site },
            Tag::Signal => Entered::Signal {
                interrupted: self.interrupted(id.0),
            },
            Tag::Adopted => Entered::Adopted,
            Tag::HistoryStart => Entered::HistoryStart,
            Tag::AfterGap => Entered::AfterGap,
            Tag::Unknown => Entered::Unknown,
            Tag::Resumed => Entered::Resumed,
        };
        Call {
            parent: node.parent.map(CallId),
            first: node.first,
            end: node.end,
            function: self
                .functions
                .get(node.function as usize)
                .copied()
                .unwrap_or_default(),
            entered,
            left: node.left,
        }
    }

    /// A call, looked up.
    fn node(&self, id: CallId) -> Option<Node> {
        match self.known() {
            Some(nodes) => nodes.get(id.0),
            None => self.index.node(self.index.which(id.0)?, &self.flow),
        }
    }

    /// All calls, told one by one, when many questions were asked.
    fn known(&self) -> Option<&Nodes> {
        if let Some(known) = self.nodes.get() {
            return Some(known);
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let few = Self::FEW + self.len() / Self::SHARE;
        (asked >= few).then(|| {
            let make = || Nodes::new(&self.index, &self.flow, &Watch::none()).unwrap_or_default();
            self.nodes.get_or_init(make)
        })
    }

    /// So many questions, and one for so many calls, are few: telling all calls takes about as long as these.
    const FEW: usize = 1 << 10;
    const SHARE: usize = 1 << 6;

    /// How many calls a call is inside of.
    #[must_use]
    pub fn depth(&self, id: CallId) -> u32 {
        let call = self.index.which(id.0);
        call.map_or(0, |call| self.index.depth(call, &self.flow))
    }

    /// The functions that were called, in no order, each with its calls in theirs: [`Call::function`] is the same in all of
    /// them. The first time it goes through all calls.
    ///
    /// # Errors
    /// When canceled.
    pub fn by_function(
        &self,
        watch: &Watch<'_>,
    ) -> Result<impl Iterator<Item = (Avma, &[CallId])>, Canceled> {
        let known = match self.by_function.get() {
            Some(known) => known,
            None => {
                let nodes = match self.nodes.get() {
                    Some(nodes) => nodes,
                    None => {
                        let made = Nodes::new(&self.index, &self.flow, watch)?;
                        self.nodes.get_or_init(|| made)
                    }
                };
                let made = ByFunction::new(nodes, self.functions.len(), watch)?;
                self.by_function.get_or_init(|| made)
            }
        };
        let all = self.functions.iter().enumerate();
        let all = all.map(|(number, &function)| (function, known.of(number)));
        Ok(all.filter(|(_, calls)| !calls.is_empty()))
    }

    fn interrupted(&self, number: u32) -> Avma {
        self.index.interrupted(number).unwrap_or_default()
    }

    /// The calls that are inside no other, in order.
    pub fn roots(&self) -> impl Iterator<Item = CallId> + '_ {
        self.siblings(0, u64::MAX)
    }

    /// The calls made directly by a call, in order.
    pub fn children(&self, id: CallId) -> impl Iterator<Item = CallId> + '_ {
        self.siblings(id.0 + 1, self.node(id).map_or(0, |node| node.end))
    }

    /// From the node at `from` on, those on its level that begin before `end`.
    fn siblings(&self, from: u32, end: u64) -> impl Iterator<Item = CallId> + '_ {
        let mut next = from;
        std::iter::from_fn(move || {
            let id = CallId(next);
            let node = self.node(id).filter(|node| node.first < end)?;
            next = self.index.begun(node.end, &self.flow).max(next + 1);
            Some(id)
        })
    }

    /// The call itself, then what it is inside of, innermost first.
    pub fn ancestors(&self, id: CallId) -> impl Iterator<Item = CallId> + '_ {
        std::iter::successors(Some(id), |&at| self.parent(at))
    }

    fn parent(&self, id: CallId) -> Option<CallId> {
        let parent = match self.known() {
            Some(nodes) => nodes.get(id.0)?.parent,
            None => self.index.parent(self.index.which(id.0)?, &self.flow),
        };
        parent.map(CallId)
    }

    /// Bytes of memory in use, beside the history's.
    #[must_use]
    pub fn memory(&self) -> usize {
        let nodes = self.nodes.get().map_or(0, Nodes::memory);
        let by_function = self.by_function.get().map_or(0, ByFunction::memory);
        self.index.memory() + size_of_val(&*self.functions) + nodes + by_function
    }
}
