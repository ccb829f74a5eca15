//! The call forest: which calls the instructions of a history belong to.

mod build;
mod by_function;
mod nodes;
mod places;
mod stack;

use crate::{Canceled, History, Watch};
use backtrail_pt::Avma;
pub(crate) use build::Builder;
use by_function::ByFunction;
pub(crate) use nodes::Room;
use nodes::{NO_NODE, NO_PARENT, Nodes};
use std::ops::Range;
use std::sync::OnceLock;

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
/// A call takes 28 bytes at most, the less the more calls a path of the history makes at once, and 4 more once [`Forest::by_function`] was asked for.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    nodes: Nodes,
    /// The functions that nodes name by number.
    functions: Vec<Avma>,
    /// Where the signals of [`Entered::Signal`] interrupted, by node; ascending.
    interrupted: Vec<(u32, Avma)>,
    /// The length of the history.
    end: u64,
    /// The innermost call that was open when history ended.
    innermost: Option<u32>,
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
    fn code(self) -> u8 {
        self as u8
    }

    fn of(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
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
    fn code(self) -> u8 {
        self as u8
    }

    fn of(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }
}

impl Forest {
    /// Finds the calls of a history.
    pub fn build(history: &History, functions: &dyn Functions, watch: &Watch<'_>) -> Result<Self, Canceled> {
        build::build(history, functions, watch)
    }

    /// How many calls there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// There is none: the history is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 0
    }

    /// The call with this [`CallId::number`].
    #[must_use]
    pub fn id(&self, number: u32) -> Option<CallId> {
        ((number as usize) < self.len()).then_some(CallId(number))
    }

    /// All calls, by their first instruction.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = CallId> + use<> {
        (0..self.nodes.len() as u32).map(CallId)
    }

    /// The innermost call that executes instruction `index`; at the end of history, the one of the
    /// last instruction, or the one a signal handler that ended there went back to. `None` when the history is empty.
    #[must_use]
    pub fn call_at(&self, index: u64) -> Option<CallId> {
        if index >= self.end
            && let Some(innermost) = self.innermost
        {
            return Some(CallId(innermost));
        }
        let index = index.min(self.end.saturating_sub(1));
        let begun = self.nodes.begun(0, index.saturating_add(1));
        let mut at = begun.checked_sub(1)? as u32;
        loop {
            let node = self.nodes.get(at)?;
            if index < node.end || node.parent == NO_PARENT {
                return Some(CallId(at));
            }
            at = node.parent;
        }
    }

    /// The last call that began before instruction `index`.
    #[must_use]
    pub fn last_begun(&self, index: u64) -> Option<CallId> {
        let begun = self.nodes.begun(0, index);
        Some(CallId(begun.checked_sub(1)? as u32))
    }

    /// A call; for an id of another forest that this one has not, one without instructions.
    #[must_use]
    pub fn call(&self, id: CallId) -> Call {
        let node = self.nodes.get(id.0).unwrap_or(NO_NODE);
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
            parent: (node.parent != NO_PARENT).then_some(CallId(node.parent)),
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

    /// How many calls a call is inside of. It takes up to 64 steps outward.
    #[must_use]
    pub fn depth(&self, id: CallId) -> u32 {
        self.nodes.depth(id.0)
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
                let made = ByFunction::new(&self.nodes, self.functions.len(), watch)?;
                self.by_function.get_or_init(|| made)
            }
        };
        let all = self.functions.iter().enumerate();
        let all = all.map(|(number, &function)| (function, known.of(number)));
        Ok(all.filter(|(_, calls)| !calls.is_empty()))
    }

    fn interrupted(&self, node: u32) -> Avma {
        let found = self
            .interrupted
            .binary_search_by_key(&node, |&(node, _)| node)
            .ok();
        found
            .and_then(|at| self.interrupted.get(at))
            .map_or(Avma(0), |&(_, at)| at)
    }

    /// The calls that are inside no other, in order.
    pub fn roots(&self) -> impl Iterator<Item = CallId> + '_ {
        self.siblings(0, u64::MAX)
    }

    /// The calls made directly by a call, in order.
    pub fn children(&self, id: CallId) -> impl Iterator<Item = CallId> + '_ {
        self.siblings(id.0 as usize + 1, self.nodes.get(id.0).map_or(0, |node| node.end))
    }

    /// From the node at `from` on, those on its level that begin before `end`.
    fn siblings(&self, from: usize, end: u64) -> impl Iterator<Item = CallId> + '_ {
        let mut next = from;
        std::iter::from_fn(move || {
            let id = next as u32;
            let node = self.nodes.get(id).filter(|node| node.first < end)?;
            next += 1 + self.nodes.begun(next + 1, node.end);
            Some(CallId(id))
        })
    }

    /// The call itself, then what it is inside of, innermost first.
    pub fn ancestors(&self, id: CallId) -> impl Iterator<Item = CallId> + '_ {
        std::iter::successors(Some(id), |&at| {
            let parent = self.nodes.parent(at.0);
            (parent != NO_PARENT).then_some(CallId(parent))
        })
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        let index = self.by_function.get().map_or(0, ByFunction::memory);
        self.nodes.memory() + size_of_val(&*self.functions) + size_of_val(&*self.interrupted) + index
    }
}
