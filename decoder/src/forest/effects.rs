//! What each execution of a path does to the open calls, in order.
//!
//! A path does the same each time, as long as the open calls are such as it is meant for. So that is kept once, by path, and
//! only what an execution does otherwise is kept with it.

use super::{Left, Tag};
use crate::history::Flow;
use rustc_hash::FxHashMap;

/// What happens to the open calls, before instruction `offset` of the execution; the one behind its last is that of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A call of the function of this number begins inside of the innermost one.
    Begin {
        offset: u32,
        function: u32,
        entered: Tag,
    },
    /// The innermost call ends.
    End { offset: u32, left: Left },
    /// The innermost call ends, which was open before the execution, and with it all that share its return.
    Leave { offset: u32, left: Left },
}

/// What comes of the way from the last instruction of a path to the first of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    /// The function that the next path begins in is called.
    Calls,
    /// The innermost call returns.
    Returns,
    /// The function that the next path begins in may be jumped to, which is noted then.
    MayTailCall,
    /// The call of this number, of those that begin in the path, is one of the function that the next begins in.
    Resolves(u32),
}

/// What a path does.
#[derive(Clone, Copy, Debug)]
struct OfPath {
    /// The number of the function that begins with its first instruction, if it is called.
    function: u32,
    first: u32,
    len: u32,
    behind: Behind,
}

impl OfPath {
    const NONE: Self = Self {
        function: 0,
        first: 0,
        len: 0,
        behind: Behind::Nothing,
    };
}

/// What an execution does for itself, all of it.
#[derive(Clone, Copy, Debug)]
struct Own {
    execution: u64,
    /// Its operations, which may be those of others too.
    first: usize,
    len: usize,
}

/// What is noted of an execution that does as its path does: how many calls end by one [`Op::Leave`], or by the return at the end,
/// where it is more than one; and that the function is jumped to which the next path begins in.
#[derive(Clone, Copy, Debug)]
struct Note {
    execution: u64,
    /// Which leave of the execution; [`Note::TAIL_CALL`].
    leave: u32,
    calls: u32,
}

impl Note {
    const TAIL_CALL: u32 = u32::MAX;
}

#[derive(Debug, Default)]
pub(super) struct Effects {
    of_paths: Vec<OfPath>,
    ops: Vec<Op>,
    own: Vec<Own>,
    own_ops: Vec<Op>,
    /// The last of `own` that is of a path.
    latest: FxHashMap<u32, usize>,
    notes: Vec<Note>,
}

/// Where a pass over the executions is: before this one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At {
    pub execution: usize,
    /// How many calls began before.
    pub began: u32,
    /// The position of the call that begins next; that of the outermost one may be below 0.
    pub depth: i32,
    own: usize,
    note: usize,
}

/// What is met on a pass, before instruction `offset` of the execution.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Begin {
        /// Counted from the first of all.
        call: u32,
        position: i32,
        offset: u32,
        function: u32,
        entered: Tag,
    },
    /// The call at a position ends.
    End { position: i32, offset: u32, left: Left },
}

impl Event {
    /// How deep it is behind it.
    pub fn depth(self) -> i32 {
        match self {
            Self::Begin { position, .. } => position + 1,
            Self::End { position, .. } => position,
        }
    }
}

impl Effects {
    /// A path does this; `function` is the number of the one that begins with its first instruction. What is found out again is kept once.
    pub fn learn(&mut self, path: u32, function: u32, ops: &[Op], behind: Behind) -> Option<()> {
        let at = path as usize;
        if self.of_paths.len() <= at {
            self.of_paths.resize(at + 1, OfPath::NONE);
        }
        let known = self.of_path(path);
        if (known.function, known.behind) == (function, behind) && self.ops_of(known) == ops {
            return Some(());
        }
        *self.of_paths.get_mut(at)? = OfPath {
            function,
            first: u32::try_from(self.ops.len()).ok()?,
            len: u32::try_from(ops.len()).ok()?,
            behind,
        };
        self.ops.extend_from_slice(ops);
        Some(())
    }

    /// An execution of a path does this, whatever the path does. They come in order.
    pub fn keep(&mut self, execution: u64, path: u32, ops: &[Op]) {
        // As a rule that is what the last one of the path did.
        let known = self
            .own
            .get(self.latest.get(&path).copied().unwrap_or(usize::MAX));
        let (first, len) = match known.filter(|&&known| self.own_ops_of(known) == ops) {
            Some(known) => (known.first, known.len),
            None => {
                self.own_ops.extend_from_slice(ops);
                (self.own_ops.len() - ops.len(), ops.len())
            }
        };
        self.latest.insert(path, self.own.len());
        self.own.push(Own {
            execution,
            first,
            len,
        });
    }

    /// So many calls end by the [`Op::Leave`] of this number of an execution. They come in order.
    #[inline]
    pub fn leave(&mut self, execution: u64, leave: u32, calls: u32) {
        self.notes.push(Note {
            execution,
            leave,
            calls,
        });
    }

    /// The function is jumped to that the path behind an execution begins in. They come in order.
    #[inline]
    pub fn tail_call(&mut self, execution: u64) {
        self.leave(execution, Note::TAIL_CALL, 0);
    }

    /// Before an execution.
    pub fn at(&self, execution: usize, began: u32, depth: i32) -> At {
        let number = execution as u64;
        At {
            execution,
            began,
            depth,
            own: self.own.partition_point(|own| own.execution < number),
            note: self.notes.partition_point(|note| note.execution < number),
        }
    }

    /// Passes an execution.
    #[inline]
    pub fn pass(&self, at: &mut At, flow: &Flow, mut visit: impl FnMut(Event)) {
        let executions = flow.executions();
        let Some(&path) = executions.get(at.execution) else {
            return;
        };
        let own = self.own.get(at.own);
        let (ops, behind) = match own.filter(|own| own.execution == at.execution as u64) {
            Some(own) => {
                at.own += 1;
                (self.own_ops_of(*own), Behind::Nothing)
            }
            None => {
                let known = self.of_path(path);
                (self.ops_of(known), known.behind)
            }
        };
        let next = executions.get(at.execution + 1);
        let next = next.map_or(OfPath::NONE, |&next| self.of_path(next)).function;
        let (mut leaves, began) = (0, at.began);
        for &op in ops {
            let op = match (op, behind) {
                (Op::Begin { offset, entered, .. }, Behind::Resolves(call)) if began + call == at.began => {
                    Op::Begin {
                        offset,
                        entered,
                        function: next,
                    }
                }
                _ => op,
            };
            self.perform(op, &mut leaves, at, &mut visit);
        }
        if behind != Behind::Nothing {
            let offset = flow.paths.count(path) as u32;
            let begins = |entered| Op::Begin {
                offset,
                function: next,
                entered,
            };
            let left = Left::Return;
            let op = match behind {
                Behind::Returns => Some(Op::Leave { offset, left }),
                Behind::Calls => Some(begins(Tag::Call)),
                Behind::MayTailCall if self.noted(at, Note::TAIL_CALL).is_some() => {
                    at.note += 1;
                    Some(begins(Tag::TailCall))
                }
                _ => None,
            };
            if let Some(op) = op {
                self.perform(op, &mut leaves, at, &mut visit);
            }
        }
        at.execution += 1;
    }

    #[inline]
    fn perform(&self, op: Op, leaves: &mut u32, at: &mut At, visit: &mut impl FnMut(Event)) {
        match op {
            Op::Begin {
                offset,
                function,
                entered,
            } => {
                visit(Event::Begin {
                    call: at.began,
                    position: at.depth,
                    offset,
                    function,
                    entered,
                });
                at.began += 1;
                at.depth += 1;
            }
            Op::End { offset, left } => {
                at.depth -= 1;
                visit(Event::End {
                    position: at.depth,
                    offset,
                    left,
                });
            }
            Op::Leave { offset, mut left } => {
                for _ in 0..self.leaving(at, *leaves) {
                    at.depth -= 1;
                    visit(Event::End {
                        position: at.depth,
                        offset,
                        left,
                    });
                    left = Left::TailCall;
                }
                *leaves += 1;
            }
        }
    }

    /// How many calls end by a leave of the execution that is passed.
    #[inline]
    fn leaving(&self, at: &mut At, leave: u32) -> u32 {
        match self.noted(at, leave) {
            Some(note) => {
                at.note += 1;
                note.calls
            }
            None => 1,
        }
    }

    /// What comes next is noted of a leave of the execution that is passed.
    #[inline]
    fn noted(&self, at: &At, leave: u32) -> Option<Note> {
        let note = self.notes.get(at.note).copied();
        note.filter(|note| (note.execution, note.leave) == (at.execution as u64, leave))
    }

    fn own_ops_of(&self, own: Own) -> &[Op] {
        self.own_ops.get(own.first..own.first + own.len).unwrap_or(&[])
    }

    fn ops_of(&self, path: OfPath) -> &[Op] {
        let first = path.first as usize;
        self.ops.get(first..first + path.len as usize).unwrap_or(&[])
    }

    fn of_path(&self, path: u32) -> OfPath {
        self.of_paths.get(path as usize).copied().unwrap_or(OfPath::NONE)
    }

    /// No more will come.
    pub fn shrink(&mut self) {
        self.latest = FxHashMap::default();
        self.own.shrink_to_fit();
        self.own_ops.shrink_to_fit();
        self.notes.shrink_to_fit();
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.of_paths)
            + size_of_val(&*self.ops)
            + size_of_val(&*self.own)
            + size_of_val(&*self.own_ops)
            + size_of_val(&*self.notes)
    }
}
