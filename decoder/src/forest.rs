//! The call forest: the calls that the instructions of a history belong to.

mod build;
mod by_function;
mod code_sites;
mod effects;
mod index;
mod nodes;
mod spans;
mod stack;

use crate::history::Flow;
use crate::{Canceled, History, Version, Watch};
use backtrail_pt::Avma;
pub(crate) use build::Builder;
use by_function::ByFunction;
use index::{Index, Node};
use nodes::Nodes;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The functions of the code, provided by the caller: the decoder knows no symbols.
pub trait Functions: Sync {
    /// Returns the address range of the function at `pc`; `None`: unknown.
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>>;

    /// Returns the entry of that function. It is outside of the range if `pc` is in a separate
    /// (cold) part.
    fn entry_of(&self, pc: Avma) -> Option<Avma> {
        self.range_of(pc).map(|range| range.start)
    }

    /// Returns whether `pc` is in a procedure linkage stub, whose jump is no call of its own.
    fn is_plt(&self, _pc: Avma) -> bool {
        false
    }

    /// Returns whether `pc` is in the dynamic linker's lazy resolver, which ends in a jump to the
    /// resolved function.
    fn is_resolver(&self, _pc: Avma) -> bool {
        false
    }

    /// Returns the functions of the module that was mapped at `pc` in a version of the code, with a
    /// number. The number is the same as long as the module stays mapped. `None`: no other module
    /// was mapped there.
    ///
    /// A forest that is built during the decode asks for the first version only. If modules were
    /// replaced, [`Forest::build`] is required.
    fn replaced(&self, _pc: Avma, _version: Version) -> Option<(usize, &dyn Functions)> {
        None
    }
}

/// No functions are known: only calls and returns form the forest.
impl Functions for () {
    fn range_of(&self, _pc: Avma) -> Option<Range<Avma>> {
        None
    }
}

/// The id of a call in a [`Forest`]. Ids ascend with [`Call::first`], parents before children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u32);

impl CallId {
    /// Returns its number, counted from 0 in the order of [`Forest::ids`].
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// One execution of a function, as far as the history has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The enclosing call; `None`: a root.
    pub parent: Option<CallId>,
    /// The index of its first instruction.
    pub first: u64,
    /// The index after the last instruction of it and its callees.
    pub end: u64,
    /// Its entry address if the history has its start, else any address in it.
    pub function: Avma,
    /// How it started.
    pub entered: Entered,
    /// How it ended.
    pub left: Left,
}

impl Call {
    /// Returns whether it may continue an earlier call: after a gap, after a stack switch, or after
    /// an unexplained transfer.
    #[must_use]
    pub fn may_be_rest(&self) -> bool {
        matches!(
            self.entered,
            Entered::AfterGap | Entered::Resumed | Entered::Unknown
        )
    }

    /// Returns whether no enclosing call has called it.
    #[must_use]
    pub fn is_outermost(&self) -> bool {
        self.parent.is_none() || self.entered == Entered::Resumed
    }
}

/// How a call started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entered {
    /// A call by the instruction at this index.
    Call {
        /// The index of the call instruction.
        site: u64,
    },
    /// A jump by the instruction at this index, at the end of the calling function. The call shares
    /// its return.
    TailCall {
        /// The index of the jump.
        site: u64,
    },
    /// The delivery of a signal.
    Signal {
        /// The instruction that runs after the handler returns.
        interrupted: Avma,
    },
    /// The call was running when its callee was called; shown by the return into it.
    Adopted,
    /// The call was running when the history started.
    HistoryStart,
    /// The call was running after a gap.
    AfterGap,
    /// The call was suspended, and resumed when another function switched to its stack: a
    /// coroutine. Its callers are not the enclosing calls.
    Resumed,
    /// An unexplained transfer.
    Unknown,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A return instruction.
    Return,
    /// A jump to another function that shares its return, or out of a separate part of a function.
    TailCall,
    /// Unwinding: `longjmp`, or an exception.
    Unwound,
    /// The return of a signal handler by `rt_sigreturn`.
    SignalReturn,
    /// An unexplained transfer.
    Unknown,
    /// The call had not ended when the history ended.
    HistoryEnd,
    /// The call had not ended at a gap.
    Gap,
}

/// All calls of a history in order of their starts, callers before callees.
///
/// The forest is an index over the history: the effect of each path on the open calls, and the call
/// depth along the history. A query of one call visits some hundreds of executions. After many
/// queries, all calls are stored explicitly, at 24 bytes each, and 4 more after
/// [`Forest::by_function`].
#[derive(Debug, Default)]
pub struct Forest {
    flow: Arc<Flow>,
    index: Index,
    /// The functions that calls refer to by number.
    functions: Vec<Avma>,
    /// The number of queries so far, up to the limit.
    asked: AtomicUsize,
    /// All calls, stored after many queries.
    nodes: OnceLock<Nodes>,
    /// The calls by function, built on first use.
    by_function: OnceLock<ByFunction>,
}

/// [`Entered`] without its values. A call site is the instruction before the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Call,
    TailCall,
    Signal,
    Adopted,
    HistoryStart,
    AfterGap,
    Unknown,
    Resumed,
}

impl EntryKind {
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

    /// Returns its number, below 8.
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

    /// Returns its number, below 8.
    fn code(self) -> u32 {
        self as u32
    }

    fn of(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Unknown)
    }
}

impl Forest {
    /// Builds the call forest of a history.
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

    /// Returns the number of calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there is no call: the history is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the id with this [`CallId::number`].
    #[must_use]
    pub fn id(&self, number: u32) -> Option<CallId> {
        ((number as usize) < self.len()).then_some(CallId(number))
    }

    /// Returns all calls by their first instruction.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = CallId> + use<> {
        (0..self.len() as u32).map(CallId)
    }

    /// Returns the innermost call at instruction `index`. At the end of the history this is the
    /// call of the last instruction, or the one that an ended signal handler returned to. `None`:
    /// the history is empty.
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

    /// Returns the last call that started before instruction `index`.
    #[must_use]
    pub fn last_begun(&self, index: u64) -> Option<CallId> {
        let before = self.index.calls_before(index, &self.flow);
        before.checked_sub(1).map(CallId)
    }

    /// Returns a call; one without instructions if the id is of another forest and out of range.
    #[must_use]
    pub fn call(&self, id: CallId) -> Call {
        let node = self.node(id).unwrap_or(Node::NONE);
        let site = node.first.wrapping_sub(1);
        let entered = match node.entered {
            EntryKind::Call => Entered::Call { site },
            EntryKind::TailCall => Entered::TailCall { site },
            EntryKind::Signal => Entered::Signal {
                interrupted: self.interrupted(id.0),
            },
            EntryKind::Adopted => Entered::Adopted,
            EntryKind::HistoryStart => Entered::HistoryStart,
            EntryKind::AfterGap => Entered::AfterGap,
            EntryKind::Unknown => Entered::Unknown,
            EntryKind::Resumed => Entered::Resumed,
        };
        Call {
            parent: node.parent.map(CallId),
            first: node.first,
            end: node.end,
            function: self
                .functions
                .get(node.function.index())
                .copied()
                .unwrap_or_default(),
            entered,
            left: node.left,
        }
    }

    /// Looks up a call.
    fn node(&self, id: CallId) -> Option<Node> {
        match self.known() {
            Some(nodes) => nodes.get(id.0),
            None => self.index.node(self.index.call_ref(id.0)?, &self.flow),
        }
    }

    /// Returns all calls, once there were many queries.
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

    /// The limit of queries: this many, and one per [`Self::SHARE`] calls. Storing all calls takes
    /// about as long.
    const FEW: usize = 1 << 10;
    const SHARE: usize = 1 << 6;

    /// Returns the number of enclosing calls.
    #[must_use]
    pub fn depth(&self, id: CallId) -> u32 {
        let call = self.index.call_ref(id.0);
        call.map_or(0, |call| self.index.depth(call, &self.flow))
    }

    /// Returns the called functions in no order, each with its calls in order. [`Call::function`]
    /// is the same in all of them. The first use goes through all calls.
    ///
    /// # Errors
    ///
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

    /// Returns the calls without enclosing call, in order.
    pub fn roots(&self) -> impl Iterator<Item = CallId> + '_ {
        self.siblings(0, u64::MAX)
    }

    /// Returns the direct callees of a call, in order.
    pub fn children(&self, id: CallId) -> impl Iterator<Item = CallId> + '_ {
        self.siblings(id.0 + 1, self.node(id).map_or(0, |node| node.end))
    }

    /// Returns the call `from` and the later ones on its level that start before `end`.
    fn siblings(&self, from: u32, end: u64) -> impl Iterator<Item = CallId> + '_ {
        let mut next = from;
        std::iter::from_fn(move || {
            let id = CallId(next);
            let node = self.node(id).filter(|node| node.first < end)?;
            next = self.index.calls_before(node.end, &self.flow).max(next + 1);
            Some(id)
        })
    }

    /// Returns the call itself, then the enclosing calls, innermost first.
    pub fn ancestors(&self, id: CallId) -> impl Iterator<Item = CallId> + '_ {
        std::iter::successors(Some(id), |&at| self.parent(at))
    }

    fn parent(&self, id: CallId) -> Option<CallId> {
        let parent = match self.known() {
            Some(nodes) => nodes.get(id.0)?.parent,
            None => self.index.parent(self.index.call_ref(id.0)?, &self.flow),
        };
        parent.map(CallId)
    }

    /// Returns the bytes in use, without the history's.
    #[must_use]
    pub fn memory(&self) -> usize {
        let nodes = self.nodes.get().map_or(0, Nodes::memory);
        let by_function = self.by_function.get().map_or(0, ByFunction::memory);
        self.index.memory() + size_of_val(&*self.functions) + nodes + by_function
    }
}
