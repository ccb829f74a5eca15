//! The effects of path executions on the open calls, in order.
//!
//! A path has the same effects each time, as long as its summary applies. So the effects are stored
//! by path, and only deviations by execution.

use super::{EntryKind, Left};
use crate::PathIdx;
use crate::forest::code_sites::SiteIdx;
use crate::history::Flow;
use rustc_hash::FxHashMap;

/// A change of the open calls before instruction `offset` of the execution. The offset after its
/// last instruction is the first of the next execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A call of this function starts inside the innermost one.
    Begin {
        offset: u32,
        function: SiteIdx,
        entered: EntryKind,
    },
    /// The innermost call ends.
    End { offset: u32, left: Left },
    /// The innermost call ends, and all calls that share its return. It was open before the
    /// execution.
    Leave { offset: u32, left: Left },
}

/// The effect of the transition from a path to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Nothing,
    /// Calls the function at the start of the next path.
    Calls,
    /// Returns from the innermost call.
    Returns,
    /// May be a tail call to the function at the start of the next path; an [`ExecutionNote`]
    /// records that.
    MayTailCall,
    /// Shows that this call, by its number in the path, is of the function at the start of the next
    /// path.
    Resolves(u32),
}

/// The effects of a path.
#[derive(Clone, Copy, Debug)]
struct PathEffects {
    /// The function that starts at its first instruction, if it is called.
    function: SiteIdx,
    first: u32,
    len: u32,
    transition: Transition,
}

impl PathEffects {
    const NONE: Self = Self {
        function: SiteIdx(0),
        first: 0,
        len: 0,
        transition: Transition::Nothing,
    };
}

/// All effects of an execution, if they differ from its path's.
#[derive(Clone, Copy, Debug)]
struct ExecutionEffects {
    execution: u64,
    /// Its operations, which equal executions share.
    first: usize,
    len: usize,
}

/// A detail of an execution with its path's effects. It is the number of calls that end by an
/// [`Op::Leave`] or the final return, if it is not one; or a tail call.
#[derive(Clone, Copy, Debug)]
struct ExecutionNote {
    execution: u64,
    /// The number of the leave in the execution; [`ExecutionNote::TAIL_CALL`].
    leave: u32,
    calls: u32,
}

impl ExecutionNote {
    const TAIL_CALL: u32 = u32::MAX;
}

#[derive(Debug, Default)]
pub(super) struct EffectStore {
    of_paths: Vec<PathEffects>,
    ops: Vec<Op>,
    of_executions: Vec<ExecutionEffects>,
    execution_ops: Vec<Op>,
    /// The last entry of `of_executions` for each path.
    latest: FxHashMap<PathIdx, usize>,
    notes: Vec<ExecutionNote>,
}

/// A cursor over the executions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EffectCursor {
    pub execution: usize,
    /// The number of calls started before.
    pub began: u32,
    /// The position of the next call; that of the outermost may be below 0.
    pub depth: i32,
    of_executions: usize,
    note: usize,
}

/// The start or end of a call, before instruction `offset` of the execution.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallEvent {
    Begin {
        /// The number of the call, counted from the first of all.
        call: u32,
        position: i32,
        offset: u32,
        function: SiteIdx,
        entered: EntryKind,
    },
    /// The call at a position ends.
    End { position: i32, offset: u32, left: Left },
}

impl CallEvent {
    /// Returns the depth after it.
    pub fn depth(self) -> i32 {
        match self {
            Self::Begin { position, .. } => position + 1,
            Self::End { position, .. } => position,
        }
    }
}

impl EffectStore {
    /// Sets the effects of a path; `function` starts at its first instruction. Equal effects are
    /// stored once.
    pub fn set_path(
        &mut self,
        path: PathIdx,
        function: SiteIdx,
        ops: &[Op],
        transition: Transition,
    ) -> Option<()> {
        let at = path.index();
        if self.of_paths.len() <= at {
            self.of_paths.resize(at + 1, PathEffects::NONE);
        }
        let known = self.of_path(path);
        if (known.function, known.transition) == (function, transition) && self.ops_of(known) == ops {
            return Some(());
        }
        *self.of_paths.get_mut(at)? = PathEffects {
            function,
            first: u32::try_from(self.ops.len()).ok()?,
            len: u32::try_from(ops.len()).ok()?,
            transition,
        };
        self.ops.extend_from_slice(ops);
        Some(())
    }

    /// Adds an execution with effects of its own. Executions come in order.
    pub fn push_execution(&mut self, execution: u64, path: PathIdx, ops: &[Op]) {
        // Usually they equal those of the path's last such execution.
        let known = self
            .of_executions
            .get(self.latest.get(&path).copied().unwrap_or(usize::MAX));
        let (first, len) = match known.filter(|&&known| self.execution_ops_of(known) == ops) {
            Some(known) => (known.first, known.len),
            None => {
                self.execution_ops.extend_from_slice(ops);
                (self.execution_ops.len() - ops.len(), ops.len())
            }
        };
        self.latest.insert(path, self.of_executions.len());
        self.of_executions.push(ExecutionEffects {
            execution,
            first,
            len,
        });
    }

    /// Records how many calls end by a leave of an execution. Records come in order.
    #[inline]
    pub fn leave(&mut self, execution: u64, leave: u32, calls: u32) {
        self.notes.push(ExecutionNote {
            execution,
            leave,
            calls,
        });
    }

    /// Records a tail call to the path after an execution. Records come in order.
    #[inline]
    pub fn tail_call(&mut self, execution: u64) {
        self.leave(execution, ExecutionNote::TAIL_CALL, 0);
    }

    /// Returns a cursor before an execution.
    pub fn at(&self, execution: usize, began: u32, depth: i32) -> EffectCursor {
        let number = execution as u64;
        EffectCursor {
            execution,
            began,
            depth,
            of_executions: self
                .of_executions
                .partition_point(|of_executions| of_executions.execution < number),
            note: self.notes.partition_point(|note| note.execution < number),
        }
    }

    /// Visits the effects of the next execution.
    #[inline]
    pub fn pass(&self, at: &mut EffectCursor, flow: &Flow, mut visit: impl FnMut(CallEvent)) {
        let executions = flow.executions();
        let Some(&path) = executions.get(at.execution) else {
            return;
        };
        let of_executions = self.of_executions.get(at.of_executions);
        let (ops, transition) =
            match of_executions.filter(|of_executions| of_executions.execution == at.execution as u64) {
                Some(of_executions) => {
                    at.of_executions += 1;
                    (self.execution_ops_of(*of_executions), Transition::Nothing)
                }
                None => {
                    let known = self.of_path(path);
                    (self.ops_of(known), known.transition)
                }
            };
        let next = executions.get(at.execution + 1);
        let next = next
            .map_or(PathEffects::NONE, |&next| self.of_path(next))
            .function;
        let (mut leaves, began) = (0, at.began);
        for &op in ops {
            let op = match (op, transition) {
                (Op::Begin { offset, entered, .. }, Transition::Resolves(call))
                    if began + call == at.began =>
                {
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
        if transition != Transition::Nothing {
            let offset = flow.paths.count(path) as u32;
            let begins = |entered| Op::Begin {
                offset,
                function: next,
                entered,
            };
            let left = Left::Return;
            let op = match transition {
                Transition::Returns => Some(Op::Leave { offset, left }),
                Transition::Calls => Some(begins(EntryKind::Call)),
                Transition::MayTailCall if self.noted(at, ExecutionNote::TAIL_CALL).is_some() => {
                    at.note += 1;
                    Some(begins(EntryKind::TailCall))
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
    fn perform(&self, op: Op, leaves: &mut u32, at: &mut EffectCursor, visit: &mut impl FnMut(CallEvent)) {
        match op {
            Op::Begin {
                offset,
                function,
                entered,
            } => {
                visit(CallEvent::Begin {
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
                visit(CallEvent::End {
                    position: at.depth,
                    offset,
                    left,
                });
            }
            Op::Leave { offset, mut left } => {
                for _ in 0..self.leaving(at, *leaves) {
                    at.depth -= 1;
                    visit(CallEvent::End {
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

    /// Returns how many calls end by a leave of the current execution.
    #[inline]
    fn leaving(&self, at: &mut EffectCursor, leave: u32) -> u32 {
        match self.noted(at, leave) {
            Some(note) => {
                at.note += 1;
                note.calls
            }
            None => 1,
        }
    }

    /// Returns the next note, if it is of a leave of the current execution.
    #[inline]
    fn noted(&self, at: &EffectCursor, leave: u32) -> Option<ExecutionNote> {
        let note = self.notes.get(at.note).copied();
        note.filter(|note| (note.execution, note.leave) == (at.execution as u64, leave))
    }

    fn execution_ops_of(&self, of_executions: ExecutionEffects) -> &[Op] {
        self.execution_ops
            .get(of_executions.first..of_executions.first + of_executions.len)
            .unwrap_or(&[])
    }

    fn ops_of(&self, path: PathEffects) -> &[Op] {
        let first = path.first as usize;
        self.ops.get(first..first + path.len as usize).unwrap_or(&[])
    }

    fn of_path(&self, path: PathIdx) -> PathEffects {
        self.of_paths
            .get(path.index())
            .copied()
            .unwrap_or(PathEffects::NONE)
    }

    /// Releases spare memory; nothing is added later.
    pub fn shrink(&mut self) {
        self.latest = FxHashMap::default();
        self.of_executions.shrink_to_fit();
        self.execution_ops.shrink_to_fit();
        self.notes.shrink_to_fit();
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.of_paths)
            + size_of_val(&*self.ops)
            + size_of_val(&*self.of_executions)
            + size_of_val(&*self.execution_ops)
            + size_of_val(&*self.notes)
    }
}
